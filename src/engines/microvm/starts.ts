import { closeSync, openSync } from 'node:fs';
import { mkdir, rm, type FileHandle } from 'node:fs/promises';
import { holdMountsToCaps } from '../../engine/mount-sources.js';
import { StartRefusedError, type Run } from '../../engine/runtime.js';
import { cpuMillis } from '../../engine/shared-cpu.js';
import { syncDirectory } from '../../lib/directories.js';
import { writeFileAtomically } from '../../lib/atomic-file.js';
import { isVolumeMount } from '../../spec/mount-schema.js';
import type { DiskImageMount } from '../../spec/run-spec.js';
import { MAX_DISK_IMAGES, openDiskImage } from './disks/disk-image.js';
import { fileLimit, fileLimitOfImage } from './disks/file-limit.js';
import type { ImageUse, StartUses } from './disks/image-uses.js';
import { layerFiles } from './disks/layers.js';
import { prepareBoot } from './prepare-boot.js';
import { noteBegun } from './prepare-copy.js';
import { prepareDisks } from './prepare-disks.js';
import { hasRun, readHeld, type HeldSandbox } from './holdings.js';
import type { Identity, RunFile } from './identity.js';
import { monitorArguments, shapeOf, type Disk } from './monitor.js';
import type { MicrovmParts } from './parts.js';
import { placesOf, type SandboxPlaces } from './places.js';
import { beginRestore, discardSaved, memoryFile, mostSavedMib, type SavedMemory } from './saved-memory.js';
import type { DiskCaptures } from './snapshots/disk-captures.js';
import { DESCRIPTOR, startSupervisor } from './supervisor.js';
import { untilReady } from './until-ready.js';
import { fileServerCommand } from './volumes/file-server.js';
import { openFolders, type OpenFolder } from './volumes/open-folders.js';

/** A file server needs it, with what the kernel of the machine keeps for its open files. */
const FOLDER_MIB = 64;

/** Starts virtual machines: their disks, their supervisors, and the wait for their first program. */
export class VmStarts {
  constructor(
    private readonly parts: MicrovmParts,
    private readonly captures: DiskCaptures,
  ) {}

  /** A supervisor of this run that an earlier process has started continues. */
  async start(run: Run, signal: AbortSignal): Promise<void> {
    await this.captures.ended(run.sandboxId, signal);
    if (signal.aborted) return;
    const held = await readHeld(this.parts.directory, run.sandboxId);
    const isCurrent = held?.run?.runId === run.runId;
    if (held && isCurrent && hasRun(held)) return;
    if (held?.isAlive && !isCurrent)
      throw new Error(`the sandbox ${run.sandboxId} still has a run other than ${run.runId}`);
    const places = placesOf(this.parts.directory, run.sandboxId);
    if (held?.isAlive) {
      await untilReady(this.parts, places, { signal, resumes: run.resumes });
      return this.endRestore(run, places, signal);
    }
    await holdMountsToCaps(this.parts.volumes, run, signal);
    if (signal.aborted) return;
    const release = await this.parts.places.acquire(run.orgId, signal);
    if (signal.aborted) return;
    if (!release) throw new Error('the machine is busy with other starts');
    try {
      if (held) await noteBegun(held);
      const saved = run.resumes === true ? savedOf(held) : undefined;
      const disks = saved
        ? { identity: held!.identity, isCopy: false }
        : await this.prepare(run, held, places, signal);
      if (!disks || signal.aborted) return;
      if (saved) await beginRestore(places, saved);
      const { ended } = await this.launch(run, disks, places, saved);
      await untilReady(this.parts, places, { signal, ended, resumes: saved !== undefined });
      await this.endRestore(run, places, signal);
    } finally {
      // The next list ends the claims of a start that has failed.
      this.parts.users.claims.settle(run.sandboxId);
      this.parts.imageUses.claims.settle(run.sandboxId);
      this.parts.folderUses.claims.settle(run.sandboxId);
      this.parts.networks.settle(run.sandboxId);
      release();
    }
  }

  /** Removes the memory from the disk once the processors run. */
  private async endRestore(run: Run, places: SandboxPlaces, signal: AbortSignal): Promise<void> {
    if (run.resumes === true && !signal.aborted) await discardSaved(places);
  }

  private async prepare(
    run: Run,
    held: HeldSandbox | undefined,
    places: SandboxPlaces,
    signal: AbortSignal,
  ): ReturnType<typeof prepareDisks> {
    const disks = await prepareDisks(this.parts, run, held, signal);
    if (!disks || signal.aborted) return undefined;
    await discardSaved(places);
    await rm(places.run, { recursive: true, force: true });
    await mkdir(places.run, { mode: 0o700 });
    await syncDirectory(places.directory);
    return disks;
  }

  private async launch(
    run: Run,
    { identity, isCopy }: { identity: Identity; isCopy: boolean },
    places: SandboxPlaces,
    saved: SavedMemory | undefined,
  ): Promise<{ ended: Promise<void> }> {
    const { parts } = this;
    const { spec, sandboxId } = run;
    const millis = cpuMillis(spec.vcpus, parts.sharedCpuMillis);
    // Its counts begin anew.
    parts.groups?.remove(sandboxId);
    const joined =
      parts.groups?.make(sandboxId, {
        cpuMillis: millis,
        memoryMib: spec.memoryMib + parts.overheadMib + FOLDER_MIB * spec.mounts.filter(isVolumeMount).length,
      }) ?? [];
    const user = parts.users.take(sandboxId);
    const uses = parts.imageUses.begin(sandboxId, { continues: saved !== undefined });
    const workdir = spec.workdir ?? (identity.image.workdir || '/');
    const network = await parts.networks.make(run, saved?.run.link);
    const opened: number[] = [];
    const descriptorOf = (fd: number) => {
      opened.push(fd);
      return DESCRIPTOR.first + opened.length - 1;
    };
    const images = new Map<number, FileHandle>();
    const folders: OpenFolder[] = [];
    try {
      folders.push(...(await openFolders(parts, run)));
      for (const [index, mount] of spec.mounts.entries()) {
        if (mount.type !== 'disk_image') continue;
        if (images.size === MAX_DISK_IMAGES)
          throw new StartRefusedError(`a virtual machine has at most ${MAX_DISK_IMAGES} disk images`);
        images.set(index, await this.openImage(run, mount, `mounts[${index}]`, uses));
      }
      const diskImages = uses.own.map(({ file, isReadonly, folders: above = [] }) => ({
        file,
        isReadonly,
        folders: [...above],
      }));
      const link = network?.link;
      const sharedFiles = new Set(folders.filter(({ isFile }) => isFile).map(({ tag }) => tag));
      const boot = await prepareBoot(parts, run, { identity, isCopy, network: network?.guest, sharedFiles });
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
          layers: layerFiles(places.directory, identity.layers ?? 0).map((file) =>
            descriptorOf(openSync(file, 'r')),
          ),
        },
        { serial: 'boot', format: 'raw', isReadonly: true, descriptor: descriptorOf(boot.configuration) },
      ];
      const diskMib = identity.diskMib ?? spec.diskMib ?? parts.defaultDiskMib;
      let diskFileMib = Math.max(fileLimit(diskMib), mostSavedMib(spec.memoryMib));
      for (const [index, mount] of spec.mounts.entries()) {
        const image = images.get(index);
        if (mount.type !== 'disk_image' || !image) continue;
        const isReadonly = mount.options?.readonly === true;
        if (!isReadonly) diskFileMib = Math.max(diskFileMib, await fileLimitOfImage(image, mount.format));
        const descriptor = descriptorOf(image.fd);
        disks.push({ serial: `image${index}`, format: mount.format, isReadonly, descriptor });
      }
      const machine = {
        isEmulated: parts.isEmulated,
        vcpus: Math.max(1, spec.vcpus),
        memoryMib: spec.memoryMib,
        disks,
        mac: network?.guest.mac,
      };
      const shape = shapeOf(machine, parts.version);
      if (
        saved &&
        (folders.length > 0 || saved.run.shape !== shape || !areSame(diskImages, saved.run.diskImages))
      )
        throw new StartRefusedError(OTHER_SHAPE);
      const file: RunFile = {
        runId: run.runId,
        user,
        workdir,
        shape,
        memoryMib: spec.memoryMib,
        diskMib,
        canHold: true,
        ...(link === undefined ? {} : { link }),
        ...(network && network.ports.length > 0 ? { ports: [...network.ports] } : {}),
        ...(diskImages.length > 0 ? { diskImages } : {}),
        ...(folders.length > 0 ? { folders: [...parts.folderUses.of(sandboxId)] } : {}),
      };
      await writeFileAtomically(places.runFile, JSON.stringify(file), { replace: true });
      const [kernel, initramfs] = [boot.kernel, boot.initramfs].map((path) =>
        descriptorOf(openSync(path, 'r')),
      );
      const shared = folders.map(({ tag, isReadonly, handle }) => ({
        tag,
        isReadonly,
        descriptor: descriptorOf(handle.fd),
      }));
      const restored = saved && descriptorOf(openSync(memoryFile(places.paused), 'r'));
      return startSupervisor({
        restored,
        runDirectory: places.run,
        user,
        alsoGroup: parts.kvmGroup,
        joined,
        changes: parts.changes.descriptor,
        namespace: network?.namespace,
        ports: network?.ports ?? [],
        files: opened,
        folders: shared,
        fileServer: shared.length > 0 ? fileServerCommand(parts.fileServer!) : [],
        diskFileMib,
        monitor: monitorArguments({
          ...machine,
          folders: shared,
          program: parts.monitor,
          diskWritesMib: parts.diskWritesMib,
          isRestored: saved !== undefined,
          kernel: kernel!,
          initramfs: initramfs!,
          commandLine: boot.commandLine,
          files: opened.length,
        }),
      });
    } finally {
      const handles = [...images.values(), ...folders.map(({ handle }) => handle)];
      const ofHandles = new Set(handles.map(({ fd }) => fd));
      for (const fd of opened) if (!ofHandles.has(fd)) closeSync(fd);
      for (const handle of handles) await handle.close();
    }
  }

  private async openImage(
    { orgId, sandboxId }: Run,
    mount: DiskImageMount,
    field: string,
    uses: StartUses,
  ): Promise<FileHandle> {
    const { folderUses } = this.parts;
    const reserve = (use: ImageUse) => {
      const writer = folderUses.writerOf([use.file, ...(use.folders ?? [])]);
      if (writer === sandboxId) return 'another mount writes to it or its folder: mount that with "readonly"';
      if (writer !== undefined)
        return `the sandbox ${writer} writes to it or its folder: stop that sandbox, or let its mount be "readonly"`;
      const holder = uses.reserve(use);
      if (holder === undefined) return undefined;
      if (holder === sandboxId)
        return 'another mount has the same file: mount it once, or each with "readonly"';
      return `the sandbox ${holder} uses it: stop that sandbox, or mount it with "readonly" in both`;
    };
    return openDiskImage(this.parts.volumes, orgId, mount, { field, reserve });
  }
}

const OTHER_SHAPE =
  'its memory was saved by another version of QEMU, or with other resources, mounts or disk images, and cannot be continued: start it again';

/**
 * Its memory has parts of the file systems of disk images, which it would write over those of another file. The number
 * of a file system is left out: it may be another one after a start of the machine.
 */
function areSame(now: readonly ImageUse[], saved: readonly ImageUse[] = []): boolean {
  const inodes = (uses: readonly ImageUse[]) => uses.map(({ file }) => file.split(':')[1]).join();
  return inodes(now) === inodes(saved);
}

function savedOf(held: HeldSandbox | undefined): SavedMemory {
  if (held?.saved) return held.saved;
  throw new StartRefusedError('the memory of its pause is no longer on the disk: start it again');
}
