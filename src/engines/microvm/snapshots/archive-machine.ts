import { Buffer } from 'node:buffer';
import { closeSync, openSync } from 'node:fs';
import { link, mkdir, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { ExportRefusedError } from '../../../engine/snapshot-archives.js';
import { StartRefusedError } from '../../../engine/runtime.js';
import { LIMIT } from '../../../guest/protocol.js';
import { ignoreMissing } from '../../../volumes/storage/guest-path.js';
import { createDiskAbove } from '../disks/create-disk.js';
import { layerFiles, linkLayers } from '../disks/layers.js';
import { BASE_FILE } from '../images/build-base.js';
import { monitorArguments, type Disk } from '../monitor.js';
import { lastWords } from '../last-words.js';
import type { MicrovmParts } from '../parts.js';
import { ARCHIVE_USERS } from '../users.js';
import { exportsDirectory, placesIn, type SandboxPlaces } from '../places.js';
import { prepareArchiveBoot } from '../prepare-boot.js';
import { isAlive } from '../processes.js';
import { readRecord } from '../read-record.js';
import { connectIn, DESCRIPTOR, requestStop, startSupervisor } from '../supervisor.js';
import { untilReady } from '../until-ready.js';
import type { StoredSnapshot } from './snapshot-store.js';

const VCPUS = 1;
/** The kernel with the entries of large directories, process 1, and the names of files with several names. */
const MEMORY_MIB = 512;
/** The kernel of the machine completes the journal of the layer, and writes nothing else. */
const WRITTEN_MIB = 2_048;
export const LONGEST_EXPORT_MS = 3_600_000;
/** A directory without a record may be that of another process, which is about to start its machine. */
const STARTS_WITHIN_MS = 600_000;
/** The machine reads all the time. */
const SILENCE_MS = { hardware: 60_000, emulated: 300_000 };
const LENGTH_BYTES = 4;

/**
 * Machines that read snapshots. A hostile sandbox wrote the file system of a layer, so neither the kernel nor a program
 * of this machine reads it. A virtual machine does, without a network, and runs no program of the snapshot. It is
 * confined like those of sandboxes, and ends with this process.
 */
export class ArchiveMachines {
  private readonly root: string;
  /** The directories of this process. */
  private readonly current = new Set<string>();

  constructor(private readonly parts: MicrovmParts) {
    this.root = exportsDirectory(parts.directory);
  }

  /** The files of a snapshot as an archive. Throws ExportRefusedError. */
  async *read(snapshot: StoredSnapshot, signal: AbortSignal): AsyncGenerator<Buffer> {
    const late = AbortSignal.timeout(LONGEST_EXPORT_MS);
    const ends = AbortSignal.any([signal, late]);
    let place: number | undefined;
    let ended: Promise<void> | undefined;
    try {
      const release = await this.parts.places.hold(snapshot.orgId, ends);
      try {
        place = await this.takePlace();
        await prepare(snapshot, this.placesOf(place));
        ({ ended } = await this.launch(place, snapshot));
        await untilReady(this.parts, this.placesOf(place), { signal: ends, ended });
      } finally {
        release();
      }
      const places = this.placesOf(place);
      const isWhole = yield* this.receive(places, ends);
      signal.throwIfAborted();
      if (isWhole) return;
      if (late.aborted)
        throw new ExportRefusedError('the machine has read its disk for an hour, which is the most');
      await end(places, ended);
      throw await refusalOf(places);
    } catch (error) {
      if (!(error instanceof StartRefusedError)) throw error;
      throw new ExportRefusedError(error.message, { cause: error });
    } finally {
      if (place !== undefined) {
        if (ended) await end(this.placesOf(place), ended);
        await this.remove(nameOf(place));
        this.current.delete(nameOf(place));
      }
    }
  }

  /** Removes what killed processes left. The machine of another process that still answers a request stays. */
  async removeLeftovers(): Promise<void> {
    for (const name of (await readdir(this.root).catch(ignoreMissing)) ?? []) {
      if (this.current.has(name)) continue;
      const record = await readRecord(placesIn(join(this.root, name)));
      if (record ? !isAlive(record) : await isOld(join(this.root, name))) await this.remove(name);
    }
  }

  /**
   * Makes a directory. Several processes export snapshots of an engine: with the directory, each has a user that no
   * other machine has.
   */
  private async takePlace(): Promise<number> {
    await mkdir(this.root, { recursive: true, mode: 0o700 });
    for (let place = 0; place < ARCHIVE_USERS; place += 1) {
      if (this.current.has(nameOf(place))) continue;
      try {
        await mkdir(join(this.root, nameOf(place)), { mode: 0o700 });
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'EEXIST') continue;
        throw error;
      }
      this.current.add(nameOf(place));
      return place;
    }
    throw new Error(`${ARCHIVE_USERS} machines read snapshots, which is the most of an installation`);
  }

  private placesOf(place: number): SandboxPlaces {
    return placesIn(join(this.root, nameOf(place)));
  }

  private async remove(name: string): Promise<void> {
    this.parts.groups?.remove(name);
    await rm(join(this.root, name), { recursive: true, force: true });
  }

  private async launch(place: number, { layers }: StoredSnapshot): Promise<{ ended: Promise<void> }> {
    const { parts } = this;
    const places = this.placesOf(place);
    const boot = await prepareArchiveBoot(parts);
    const files = [boot.configuration];
    const descriptorOf = (path: string, flags = 'r') => {
      files.push(openSync(path, flags));
      return DESCRIPTOR.first + files.length - 1;
    };
    try {
      const disks: Disk[] = [
        { serial: 'boot', format: 'raw', isReadonly: true, descriptor: DESCRIPTOR.first },
        { serial: 'base', format: 'raw', isReadonly: true, descriptor: descriptorOf(places.base) },
        {
          serial: 'disk',
          format: 'qcow2',
          isReadonly: false,
          descriptor: descriptorOf(places.disk, 'r+'),
          layers: layerFiles(places.directory, layers).map((file) => descriptorOf(file)),
        },
      ];
      const [kernel, initramfs] = [descriptorOf(boot.kernel), descriptorOf(boot.initramfs)];
      const memoryMib = MEMORY_MIB + parts.overheadMib;
      return startSupervisor({
        endsWithService: true,
        runDirectory: places.run,
        user: parts.users.ofArchive(place),
        alsoGroup: parts.kvmGroup,
        joined: parts.groups?.make(nameOf(place), { cpuMillis: VCPUS * 1_000, memoryMib }) ?? [],
        changes: parts.changes.descriptor,
        namespace: undefined,
        files,
        diskFileMib: WRITTEN_MIB,
        monitor: monitorArguments({
          program: parts.monitor,
          isEmulated: parts.isEmulated,
          vcpus: VCPUS,
          memoryMib: MEMORY_MIB,
          disks,
          diskWritesMib: 0,
          folders: [],
          kernel,
          initramfs,
          commandLine: boot.commandLine,
          mac: undefined,
          isRestored: false,
          files: files.length,
        }),
      });
    } finally {
      for (const file of files) closeSync(file);
    }
  }

  /** Returns whether the archive is complete. */
  private async *receive(places: SandboxPlaces, signal: AbortSignal): AsyncGenerator<Buffer, boolean> {
    const socket = await connectIn(places.run, 'agent.sock').catch(() => undefined);
    if (!socket) return false;
    const abort = () => socket.destroy();
    signal.addEventListener('abort', abort, { once: true });
    if (signal.aborted) abort();
    try {
      socket.setTimeout(SILENCE_MS[this.parts.isEmulated ? 'emulated' : 'hardware'], abort);
      return yield* piecesOf(socket as AsyncIterable<Buffer>);
    } finally {
      signal.removeEventListener('abort', abort);
      abort();
    }
  }
}

/** It is also that of the control groups, which are beside those of sandboxes. */
function nameOf(place: number): string {
  return `export-${place}`;
}

async function isOld(path: string): Promise<boolean> {
  const found = await stat(path).catch(ignoreMissing);
  return found !== undefined && Date.now() - found.mtimeMs > STARTS_WITHIN_MS;
}

async function prepare({ directory, layers, diskMib }: StoredSnapshot, places: SandboxPlaces): Promise<void> {
  await mkdir(places.run, { mode: 0o700 });
  try {
    // The links keep the files, also when the snapshot is deleted meanwhile.
    await link(join(directory, BASE_FILE), places.base);
    await linkLayers(directory, places.directory, layers);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'ENOENT') throw cause;
    throw new ExportRefusedError('it was deleted meanwhile', { cause });
  }
  await createDiskAbove(places.disk, diskMib);
}

async function end({ run }: SandboxPlaces, ended: Promise<void>): Promise<void> {
  await requestStop(run, 0);
  await ended;
}

/** The words of the monitor and of the kernel are for the log alone. */
async function refusalOf(places: SandboxPlaces): Promise<Error> {
  const failed =
    (await readRecord(places))?.failed ??
    'it ended or stood still before the last file. Repeat the request. If it fails again, the log of the service has the last words of the machine';
  const cause = new Error(await lastWords(places));
  return new ExportRefusedError(`the machine that reads its disk has failed: ${failed}`, { cause });
}

/** Reads the pieces of a machine, which may be hostile. Returns whether the archive is complete. */
export async function* piecesOf(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer, boolean> {
  let kept: Buffer = Buffer.alloc(0);
  // Each piece costs a turn of the event loop, so all but the last one must be full.
  let isLast = false;
  try {
    for await (const chunk of chunks) {
      kept = Buffer.concat([kept, chunk]);
      while (kept.length >= LENGTH_BYTES) {
        const length = kept.readUInt32LE();
        if (length === 0) return true;
        if (isLast || length > LIMIT.archivePiece) return false;
        const end = LENGTH_BYTES + length;
        if (kept.length < end) break;
        isLast = length < LIMIT.archivePiece;
        yield kept.subarray(LENGTH_BYTES, end);
        kept = kept.subarray(end);
      }
    }
  } catch {
    // The machine has ended.
  }
  return false;
}
