import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connectAgent } from '../../../src/engines/microvm/agent-session.js';
import { bootFiles } from '../../../src/engines/microvm/boot/boot-files.js';
import {
  writeBootConfiguration,
  type BootConfiguration,
} from '../../../src/engines/microvm/boot/configuration.js';
import { kernelOptions } from '../../../src/engines/microvm/boot/kernel-options.js';
import { processorArguments } from '../../../src/engines/microvm/monitor.js';
import type { GuestAgent } from '../../../src/guest/agent.js';
import { initArguments, type InitOptions } from '../../../src/guest/programs.js';
import { sleep } from '../../../src/lib/sleep.js';
import { PACKAGE_ROOT } from '../../../src/lib/package-root.js';
import { until } from '../polling.js';
import { makeBusyboxBase, makeDisk } from './disks.js';
import { isEmulated, kernel } from './needs.js';

const ENVIRONMENT = ['PATH=/bin', 'COLOUR=blue'];

export interface MachineOptions {
  configuration?: Partial<BootConfiguration>;
  /** Process 1. Default: it has no command. */
  init?: Partial<InitOptions>;
  memoryMib?: number;
  /** More arguments of QEMU. */
  devices?: readonly string[];
  /** Nobody reads these ports. */
  unread?: readonly ('control' | 'output')[];
  /** A disk of an earlier machine. Default: an empty one. */
  disk?: string;
}

/** A virtual machine of a test, without a supervisor. */
export interface Machine {
  directory: string;
  agentSocket: string;
  /** The lines of the port `control`. */
  lines: string[];
  /** The output of the command, by stream. */
  output: Record<'stdout' | 'stderr', () => string>;
  console: () => string;
  say(line: string): void;
  /** Waits for a line that begins so. */
  line(begin: string): Promise<string>;
  connect(): Promise<GuestAgent>;
  /** Resolves with the exit code of the monitor. */
  ended: Promise<number | null>;
  kill(): Promise<void>;
}

/** Runs of tests share them. */
const BOOT_FILES = join(PACKAGE_ROOT, 'node_modules/.cache/microvm-boot');

let files: ReturnType<typeof bootFiles> | undefined;

function sharedFiles(): ReturnType<typeof bootFiles> {
  return (files ??= bootFiles({ directory: BOOT_FILES, kernel }));
}

export async function moduleFiles(): Promise<Awaited<ReturnType<typeof bootFiles>>['modules']> {
  return (await sharedFiles()).modules;
}

export async function startMachine(options: MachineOptions = {}): Promise<Machine> {
  const { memoryMib = 192, devices = [], unread = [] } = options;
  const made = await sharedFiles();
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-microvm-'));
  const at = (name: string) => join(directory, name);
  const init = initArguments({
    command: [],
    untilExit: false,
    stopSignal: 15,
    agents: true,
    ...options.init,
  });
  await writeBootConfiguration(at('boot.img'), {
    hostName: 'box',
    user: null,
    workdir: '/',
    environment: ENVIRONMENT,
    arguments: init,
    rlimits: [],
    modules: [],
    patches: [],
    files: [],
    mounts: [],
    network: null,
    restricted: false,
    ...options.configuration,
  });
  const disk = options.disk ?? makeDisk(directory);
  const port = (name: string) => [
    ['-chardev', `socket,id=${name},path=${at(name)},server=on,wait=off`],
    ['-device', `virtserialport,chardev=${name},name=${name}`],
  ];
  const child = spawn(
    'qemu-system-x86_64',
    [
      ['-nodefaults', '-no-user-config', '-no-reboot', '-display', 'none', '-serial', 'stdio'],
      ['-machine', 'microvm,acpi=on,rtc=on,pit=on,pic=on,usb=off,pcie=off,isa-serial=on'],
      [...processorArguments({ isEmulated }), '-m', `${memoryMib}M`],
      ['-kernel', made.kernel, '-initrd', made.initramfs, '-append', kernelOptions({ isEmulated })],
      ['-device', 'virtio-serial-device', ...['agent', 'control', 'output'].flatMap(port).flat()],
      drive('base', 'raw', makeBusyboxBase(directory), true),
      drive('disk', 'qcow2', disk, false),
      drive('boot', 'raw', at('boot.img'), true),
      devices,
    ].flat(),
    { stdio: ['ignore', 'pipe', 'pipe'] },
  );
  const ended = once(child, 'exit').then(([code]: (number | null)[]) => code ?? null);
  const said: Buffer[] = [];
  child.stdout.on('data', (data: Buffer) => said.push(data));
  child.stderr.on('data', (data: Buffer) => said.push(data));
  const console = () => Buffer.concat(said).toString();
  const [control, output] = await Promise.all(
    (['control', 'output'] as const).map(async (name) =>
      unread.includes(name) ? undefined : connectSoon(at(name), () => child.exitCode !== null, console),
    ),
  );
  // The monitor has written everything at its end, but it may not have been read yet.
  const read = Promise.all([control, output].map(closed));
  let isOver = false;
  const over = ended.then(async (code) => {
    await read;
    isOver = true;
    return code;
  });
  const lines: string[] = [];
  let rest = '';
  control?.on('data', (data: Buffer) => {
    const all = `${rest}${data.toString('latin1')}`.split('\n');
    rest = all.pop()!;
    lines.push(...all);
    if (all.includes('clock')) control.write(`clock ${Date.now()}000000\n`);
  });
  const frames: Buffer[] = [];
  output?.on('data', (data: Buffer) => frames.push(data));
  const stream = (number: number) => () => textOf(Buffer.concat(frames), number);
  return {
    directory,
    agentSocket: at('agent'),
    lines,
    output: { stdout: stream(1), stderr: stream(2) },
    console,
    say: (line) => void control!.write(`${line}\n`),
    line: async (begin) => {
      const found = () => lines.find((line) => line.startsWith(begin));
      await until(
        async () => Promise.resolve({ lines, console: console().slice(-500) }),
        () => found() !== undefined || isOver,
        // An emulated boot takes 14 s, and many times that when others take the processors and the disk.
        400_000,
      );
      const line = found();
      if (line === undefined) throw new Error(`the machine ended: ${lines.join(', ')}; ${console()}`);
      return line;
    },
    connect: async () => {
      const defaults = { env: options.configuration?.environment ?? ENVIRONMENT, cwd: '/' };
      for (;;) {
        const agent = await connectAgent(at('agent'), defaults).catch(
          (error: NodeJS.ErrnoException) => error,
        );
        if (!(agent instanceof Error)) return agent;
        // The monitor has just started.
        if (!['ENOENT', 'ECONNREFUSED'].includes(agent.code ?? '') || child.exitCode !== null) throw agent;
        await sleep(20);
      }
    },
    ended: over,
    kill: async () => {
      child.kill('SIGKILL');
      await ended;
      control?.destroy();
      output?.destroy();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

async function closed(socket: Socket | undefined): Promise<void> {
  if (socket && !socket.closed) await new Promise<void>((resolve) => socket.once('close', () => resolve()));
}

/** The arguments of QEMU for a disk. */
export function drive(serial: string, format: string, file: string, isReadonly: boolean): string[] {
  const access = isReadonly ? 'on' : 'off';
  return [
    '-blockdev',
    `driver=${format},node-name=${serial},read-only=${access},file.driver=file,file.filename=${file},file.read-only=${access}`,
    '-device',
    `virtio-blk-device,drive=${serial},serial=${serial}`,
  ];
}

async function connectSoon(path: string, isOver: () => boolean, why: () => string): Promise<Socket> {
  for (;;) {
    const socket = connect(path);
    const failed = await new Promise<boolean>((resolve) => {
      socket.once('connect', () => resolve(false));
      socket.once('error', () => resolve(true));
    });
    if (!failed) {
      socket.on('error', () => undefined);
      return socket;
    }
    if (isOver()) throw new Error(`the monitor ended: ${why()}`);
    await sleep(20);
  }
}

/** The bytes of one stream in frames. */
function textOf(frames: Buffer, stream: number): string {
  const parts: Buffer[] = [];
  for (let at = 0; at + 4 <= frames.length;) {
    const end = at + 4 + frames.readUInt16LE(at + 2);
    if (frames[at] === stream) parts.push(frames.subarray(at + 4, end));
    at = end;
  }
  return Buffer.concat(parts).toString();
}
