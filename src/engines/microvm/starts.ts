import { closeSync, openSync } from 'node:fs';
import { mkdir, rm, type FileHandle } from 'node:fs/promises';
import { StartRefusedError, type Run } from '../../engine/runtime.js';
import { cpuMillis } from '../../engine/shared-cpu.js';
import { syncDirectory } from '../../lib/directories.js';
import { writeFileAtomically } from '../../lib/atomic-file.js';
import type { DiskImageMount } from '../../spec/run-spec.js';
import { MAX_DISK_IMAGES, openDiskImage } from './disks/disk-image.js';
import { prepareBoot } from './prepare-boot.js';
import { prepareDisks } from './prepare-disks.js';
import { hasRun, readHeld, readRecord, type HeldSandbox } from './holdings.js';
import type { Identity, RunFile } from './identity.js';
import { monitorArguments, type Disk } from './monitor.js';
import type { MicrovmParts } from './parts.js';
import { placesOf, type SandboxPlaces } from './places.js';
import { DESCRIPTOR, requestStop, startSupervisor } from './supervisor.js';

/** A kernel needs a second with KVM, and a few where it is emulated; a busy machine many. */
const READY_MS = { hardware: 60_000, emulated: 300_000 };
const LOOK_MS = 500;

/** Starts virtual machines: their disks, their supervisors, and the wait for their first program. */
export class VmStarts {
  constructor(private readonly parts: MicrovmParts) {}

  /** A supervisor of this run that an earlier process has started goes on. */
  async start(run: Run, signal: AbortSignal): Promise<void> {
    const held = await readHeld(this.parts.directory, run.sandboxId);
    const isCurrent = held?.run?.runId === run.runId;
    if (held && isCurrent && hasRun(held)) return;
    if (held?.isAlive && !isCurrent)
      throw new Error(`the sandbox ${run.sandboxId} still has a run other than ${run.runId}`);
    const places = placesOf(this.parts.directory, run.sandboxId);
    if (held?.isAlive) return this.untilReady(places, signal);
    const release = await this.parts.places.acquire(run.orgId, signal);
    if (signal.aborted) return;
    if (!release) throw new Error('the machine is busy with other starts');
    try {
      const identity = await this.prepare(run, held, places, signal);
      if (!identity || signal.aborted) return;
      const { ended } = await this.launch(run, identity, places);
      await this.untilReady(places, signal, ended);
    } finally {
      this.parts.networks.settle(run.sandboxId);
      release();
    }
  }

  private async prepare(
    run: Run,
    held: HeldSandbox | undefined,
    places: SandboxPlaces,
    signal: AbortSignal,
  ): Promise<Identity | undefined> {
    const identity = await prepareDisks(this.parts, run, held, signal);
    if (!identity || signal.aborted) return undefined;
    await rm(places.run, { recursive: true, force: true });
    await mkdir(places.run, { mode: 0o700 });
    await syncDirectory(places.directory);
    return identity;
  }

  private async launch(
    run: Run,
    identity: Identity,
    places: SandboxPlaces,
  ): Promise<{ ended: Promise<void> }> {
    const { parts } = this;
    const { spec, sandboxId } = run;
    const millis = cpuMillis(spec.vcpus, parts.sharedCpuMillis);
    // Its counts begin anew.
    parts.groups?.remove(sandboxId);
    const joined =
      parts.groups?.make(sandboxId, {
        cpuMillis: millis,
        memoryMib: spec.memoryMib + parts.overheadMib,
      }) ?? [];
    const user = parts.users.take(sandboxId);
    const workdir = spec.workdir ?? (identity.image.workdir || '/');
    const network = await parts.networks.make(run);
    const file: RunFile = { runId: run.runId, user, workdir, ...(network ? { link: network.link } : {}) };
    await writeFileAtomically(places.runFile, JSON.stringify(file), { replace: true });
    const boot = await prepareBoot(parts, run, { identity, network: network?.guest });
    const opened: number[] = [];
    const images: FileHandle[] = [];
    const descriptorOf = (fd: number) => {
      opened.push(fd);
      return DESCRIPTOR.first + opened.length - 1;
    };
    const imageOf = async (mount: DiskImageMount, index: number): Promise<Disk> => {
      const file = await openDiskImage(parts.volumes, run.orgId, mount, `mounts[${index}]`);
      images.push(file);
      const isReadonly = mount.options?.readonly === true;
      return { serial: `image${index}`, format: mount.format, isReadonly, descriptor: descriptorOf(file.fd) };
    };
    try {
      const disks: Disk[] = [
        {
          serial: 'base',
          format: 'raw',
          isReadonly: true,
          descriptor: descriptorOf(openSync(places.base, 'r')),
        },
        {
          serial: 'disk',
          format: 'qcow2',
          isReadonly: false,
          descriptor: descriptorOf(openSync(places.disk, 'r+')),
        },
        { serial: 'boot', format: 'raw', isReadonly: true, descriptor: descriptorOf(boot.configuration) },
      ];
      for (const [index, mount] of spec.mounts.entries()) {
        if (mount.type !== 'disk_image') continue;
        if (images.length === MAX_DISK_IMAGES)
          throw new StartRefusedError(`a virtual machine has at most ${MAX_DISK_IMAGES} disk images`);
        disks.push(await imageOf(mount, index));
      }
      const [kernel, initramfs] = [boot.kernel, boot.initramfs].map((path) =>
        descriptorOf(openSync(path, 'r')),
      );
      return startSupervisor({
        runDirectory: places.run,
        user,
        alsoGroup: parts.kvmGroup,
        joined,
        changes: parts.changes.descriptor,
        namespace: network?.namespace,
        files: opened,
        monitor: monitorArguments({
          program: parts.monitor,
          isEmulated: parts.isEmulated,
          vcpus: Math.max(1, spec.vcpus),
          memoryMib: spec.memoryMib,
          disks,
          kernel: kernel!,
          initramfs: initramfs!,
          commandLine: boot.commandLine,
          mac: network?.guest.mac,
          files: opened.length,
        }),
      });
    } finally {
      const ofHandles = new Set(images.map(({ fd }) => fd));
      for (const fd of opened) if (!ofHandles.has(fd)) closeSync(fd);
      for (const file of images) await file.close();
    }
  }

  /** Throws StartRefusedError when the run has ended before. */
  private async untilReady(
    places: SandboxPlaces,
    signal: AbortSignal,
    ended: Promise<void> = new Promise(() => undefined),
  ): Promise<void> {
    const { parts } = this;
    const limit = performance.now() + (parts.isEmulated ? READY_MS.emulated : READY_MS.hardware);
    let isOver = false;
    const over = ended.finally(() => (isOver = true));
    while (!signal.aborted) {
      const wasOver = isOver;
      const record = await readRecord(places);
      if (record?.readyAt !== undefined && record.startedAt !== undefined) return;
      if (record?.end !== undefined) throw refusalOf(record.failed);
      if (wasOver) throw refusalOf();
      if (performance.now() > limit) {
        await requestStop(places.run, 0);
        throw new StartRefusedError('the virtual machine has not become ready in time');
      }
      await Promise.race([parts.changes.next(LOOK_MS, signal), over]);
    }
  }
}

/** The console has the words of the monitor, which are not for callers: they name files of the machine. */
function refusalOf(words = 'the virtual machine ended before its first program ran'): Error {
  return new StartRefusedError(words);
}
