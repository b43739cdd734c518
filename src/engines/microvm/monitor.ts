import { createHash } from 'node:crypto';
import { DESCRIPTOR } from './supervisor.js';

/** A block device. The file is a descriptor of the monitor, so that its user needs no path. */
export interface Disk {
  /** By which the sandbox finds it. */
  serial: string;
  descriptor: number;
  /** Never probed: a sandbox could write the header of another format. */
  format: 'raw' | 'qcow2' | 'vmdk';
  isReadonly: boolean;
  /** The descriptors of the layers below it, from the lowest one. They are qcow2. Default: none. */
  layers?: readonly number[];
}

/** A directory of a volume. A file server answers on the descriptor, which is connected to it. */
interface SharedFolder {
  /** By which the sandbox finds it. */
  tag: string;
  descriptor: number;
}

export interface VirtualMachine {
  program: string;
  isEmulated: boolean;
  vcpus: number;
  memoryMib: number;
  disks: readonly Disk[];
  /** MiB a second to all of them. 0: no limit. */
  diskWritesMib: number;
  folders: readonly SharedFolder[];
  kernel: number;
  initramfs: number;
  commandLine: string;
  /** The address of its interface. Undefined: it has none. */
  mac: string | undefined;
  /** It continues a memory, which the supervisor names. */
  isRestored: boolean;
  /** The number of descriptors that the service opened for it. */
  files: number;
}

/** In the order in which a supervisor adds them. */
const PORTS = ['qmp', 'control', 'output', 'console', 'agent'] as const;

/** The translated code of an emulated processor. The default is a quarter of the memory of the guest, and more. */
const TRANSLATION_MIB = 64;

/**
 * The command line of QEMU. Only virtio devices: each of the others is code that a hostile sandbox reaches. Its disks
 * are descriptors, and it may start no process and take no right (`-sandbox`).
 */
export function monitorArguments(machine: VirtualMachine): string[] {
  const first = DESCRIPTOR.first + machine.files;
  const port = (name: (typeof PORTS)[number]) => first + PORTS.indexOf(name);
  return [
    machine.program,
    '-nodefaults',
    '-no-user-config',
    '-no-reboot',
    '-display',
    'none',
    '-sandbox',
    'on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny',
    // The supervisor lets the processors run.
    '-S',
    ...(machine.isRestored ? ['-incoming', 'defer'] : []),
    ...memoryArguments(machine),
    ...processorArguments(machine),
    '-smp',
    String(machine.vcpus),
    '-m',
    `${machine.memoryMib}M`,
    '-kernel',
    `/proc/self/fd/${machine.kernel}`,
    '-initrd',
    `/proc/self/fd/${machine.initramfs}`,
    '-append',
    machine.commandLine,
    '-chardev',
    `socket,id=qmp,fd=${port('qmp')}`,
    '-mon',
    'chardev=qmp,mode=control',
    '-chardev',
    `socket,id=console,fd=${port('console')}`,
    '-serial',
    'chardev:console',
    '-device',
    'virtio-serial-device,max_ports=4',
    '-chardev',
    `socket,id=agent,fd=${port('agent')},server=on,wait=off`,
    '-device',
    'virtserialport,chardev=agent,name=agent',
    '-chardev',
    `socket,id=control,fd=${port('control')}`,
    '-device',
    'virtserialport,chardev=control,name=control',
    '-chardev',
    `socket,id=output,fd=${port('output')}`,
    '-device',
    'virtserialport,chardev=output,name=output',
    '-object',
    'rng-random,id=entropy,filename=/dev/urandom',
    '-device',
    'virtio-rng-device,rng=entropy',
    ...networkArguments(machine),
    ...writesArguments(machine),
    ...machine.disks.flatMap((disk) => diskArguments(disk, machine.diskWritesMib > 0)),
    ...machine.folders.flatMap(folderArguments),
  ];
}

/** Those of a monitor that makes a machine like those of sandboxes, lets it run no instruction, and obeys its input. */
export function probeArguments(program: string, processor: Pick<VirtualMachine, 'isEmulated'>): string[] {
  return [
    program,
    '-nodefaults',
    '-no-user-config',
    '-display',
    'none',
    '-S',
    '-machine',
    MACHINE,
    ...processorArguments(processor),
    '-m',
    '16M',
    '-qmp',
    'stdio',
  ];
}

/** A digest of the machine: a monitor continues only a memory of the same one, by the same version of QEMU. */
export function shapeOf(
  machine: Pick<VirtualMachine, 'isEmulated' | 'vcpus' | 'memoryMib' | 'disks' | 'mac'>,
  version: string,
): string {
  const { vcpus, memoryMib, mac = '' } = machine;
  const disks = machine.disks.map(({ serial, format, isReadonly }) => [serial, format, isReadonly]);
  const parts = [version, MACHINE, processorArguments(machine), vcpus, memoryMib, mac, PORTS, disks];
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex');
}

/** Without PCI, and with the tables by which a kernel of a distribution finds the devices. */
const MACHINE = 'microvm,acpi=on,rtc=on,pit=on,pic=on,usb=off,pcie=off,isa-serial=on';

export function processorArguments({ isEmulated }: Pick<VirtualMachine, 'isEmulated'>): string[] {
  if (!isEmulated) return ['-accel', 'kvm', '-cpu', 'host'];
  return ['-accel', `tcg,tb-size=${TRANSLATION_MIB}`, '-cpu', 'qemu64'];
}

/** File servers read the requests of the sandbox in its memory, and write their answers there. */
function memoryArguments({ folders, memoryMib }: VirtualMachine): string[] {
  if (folders.length === 0) return ['-machine', MACHINE];
  return [
    '-object',
    `memory-backend-memfd,id=memory,size=${memoryMib}M,share=on`,
    '-machine',
    `${MACHINE},memory-backend=memory`,
    // Such a device has no older form.
    '-global',
    'virtio-mmio.force-legacy=false',
  ];
}

function folderArguments({ tag, descriptor }: SharedFolder): string[] {
  return [
    '-chardev',
    `socket,id=${tag},fd=${descriptor}`,
    '-device',
    `vhost-user-fs-device,chardev=${tag},tag=${tag}`,
  ];
}

/** The tap is open. The parser of its queues is in the monitor (`vhost=off`), and not in the kernel of the machine. */
function networkArguments({ mac }: VirtualMachine): string[] {
  if (mac === undefined) return [];
  return [
    '-netdev',
    `tap,id=network,fd=${DESCRIPTOR.tap},vhost=off`,
    '-device',
    `virtio-net-device,netdev=network,mac=${mac}`,
  ];
}

/** A disk has many layers, and the memory of a monitor is small. */
const SMALL_CACHES = { 'l2-cache-size': 256 * 1024 };

function accessOf(isReadonly: boolean): object {
  return { 'read-only': isReadonly, 'auto-read-only': false };
}

/** The file of a node, by its descriptor. */
function fileArguments(name: string, descriptor: number, isReadonly: boolean): string[] {
  const file = {
    driver: 'file',
    'node-name': `${name}-file`,
    filename: `/dev/fdset/${descriptor}`,
    ...accessOf(isReadonly),
    ...(isReadonly ? {} : { discard: 'unmap' }),
  };
  return ['-add-fd', `fd=${descriptor},set=${descriptor}`, '-blockdev', JSON.stringify(file)];
}

function nodeArguments(name: string, driver: string, isReadonly: boolean, more: object): string[] {
  const node = { driver, 'node-name': name, file: `${name}-file`, ...accessOf(isReadonly), ...more };
  return ['-blockdev', JSON.stringify(node)];
}

const WRITES = 'writes';

/** One bound for all disks. A control group of version 1 does not bound the writes that a cache of files delays. */
function writesArguments({ diskWritesMib }: VirtualMachine): string[] {
  return diskWritesMib === 0
    ? []
    : ['-object', `throttle-group,id=${WRITES},x-bps-write=${diskWritesMib * 1024 * 1024}`];
}

function diskArguments(
  { serial, descriptor, format, isReadonly, layers = [] }: Disk,
  isBounded: boolean,
): string[] {
  const names = layers.map((_, index) => `${serial}-layer-${index}`);
  // Without "backing" a header could name another file of the machine.
  const backing = (index: number) => ({ backing: names[index] ?? null });
  const below = names.flatMap((name, index) => [
    ...fileArguments(name, layers[index]!, true),
    ...nodeArguments(name, 'qcow2', true, { ...backing(index - 1), ...SMALL_CACHES }),
  ]);
  const more = format === 'raw' ? {} : { ...backing(names.length - 1), discard: 'unmap' };
  const bounded = `${serial}-bounded`;
  const bound = {
    driver: 'throttle',
    'node-name': bounded,
    'throttle-group': WRITES,
    file: serial,
    ...accessOf(isReadonly),
    discard: 'unmap',
  };
  const hasBound = isBounded && !isReadonly;
  return [
    ...below,
    ...fileArguments(serial, descriptor, isReadonly),
    ...nodeArguments(serial, format, isReadonly, more),
    ...(hasBound ? ['-blockdev', JSON.stringify(bound)] : []),
    '-device',
    `virtio-blk-device,drive=${hasBound ? bounded : serial},serial=${serial}${isReadonly ? '' : ',discard=on'}`,
  ];
}
