import { Buffer } from 'node:buffer';
import { closeSync, openSync } from 'node:fs';
import { link, mkdir, open, readdir, rm, type FileHandle } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { ExportRefusedError } from '../../../engine/snapshot-archives.js';
import { StartRefusedError } from '../../../engine/runtime.js';
import { LIMIT } from '../../../guest/protocol.js';
import { newId } from '../../../lib/uuid.js';
import { ignoreMissing } from '../../../volumes/storage/guest-path.js';
import { createDiskAbove } from '../disks/create-disk.js';
import { fileLimit } from '../disks/file-limit.js';
import { layerFiles, linkLayers } from '../disks/layers.js';
import { BASE_FILE } from '../images/build-base.js';
import { monitorArguments, type Disk } from '../monitor.js';
import { lastWords } from '../last-words.js';
import type { MicrovmParts } from '../parts.js';
import { exportsDirectory, placesIn, type SandboxPlaces } from '../places.js';
import { prepareArchiveBoot } from '../prepare-boot.js';
import { isAlive } from '../processes.js';
import { readRecord } from '../read-record.js';
import { connectIn, DESCRIPTOR, requestStop, startSupervisor } from '../supervisor.js';
import { untilReady } from '../until-ready.js';
import type { StoredSnapshot } from './snapshot-store.js';

const VCPUS = 1;
/** The kernel, process 1, and the names of files with several names. */
const MEMORY_MIB = 256;
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
    const name = newId();
    this.current.add(name);
    const places = placesIn(join(this.root, name));
    let ended: Promise<void> | undefined;
    try {
      await this.prepare(snapshot, places).catch((cause: unknown) => {
        if ((cause as NodeJS.ErrnoException).code !== 'ENOENT') throw cause;
        throw new ExportRefusedError('it was deleted meanwhile', { cause });
      });
      const release = await this.parts.places.hold(snapshot.orgId, signal);
      try {
        ({ ended } = await this.launch(name, snapshot, places));
        await untilReady(this.parts, places, { signal, ended });
      } finally {
        release();
      }
      const isWhole = yield* this.receive(places, signal);
      signal.throwIfAborted();
      if (isWhole) return;
      await end(places, ended);
      throw await refusalOf(places);
    } catch (error) {
      if (!(error instanceof StartRefusedError)) throw error;
      throw new ExportRefusedError(error.message, { cause: error });
    } finally {
      if (ended) await end(places, ended);
      this.parts.users.claims.release(name);
      this.parts.groups?.remove(name);
      await rm(places.directory, { recursive: true, force: true });
      this.current.delete(name);
    }
  }

  /** A file without a name, on the disk of the engine. */
  async openSpool(): Promise<FileHandle> {
    await mkdir(this.root, { recursive: true, mode: 0o700 });
    const path = join(this.root, newId());
    const file = await open(path, 'wx+', 0o600);
    await rm(path, { force: true });
    return file;
  }

  /** Removes what killed processes left. The machine of another process that still answers a request stays. */
  async removeLeftovers(): Promise<void> {
    for (const name of (await readdir(this.root).catch(ignoreMissing)) ?? []) {
      const record = await readRecord(placesIn(join(this.root, name)));
      if (this.current.has(name) || (record && isAlive(record))) continue;
      this.parts.groups?.remove(name);
      await rm(join(this.root, name), { recursive: true, force: true });
    }
  }

  /** The links keep the files, also when the snapshot is deleted meanwhile. */
  private async prepare(
    { directory, layers, diskMib }: StoredSnapshot,
    places: SandboxPlaces,
  ): Promise<void> {
    await mkdir(places.run, { recursive: true, mode: 0o700 });
    await link(join(directory, BASE_FILE), places.base);
    await linkLayers(directory, places.directory, layers);
    // The kernel of the machine completes what the journal of the layer has, and writes it there.
    await createDiskAbove(places.disk, diskMib);
  }

  private async launch(
    name: string,
    { layers, diskMib }: StoredSnapshot,
    places: SandboxPlaces,
  ): Promise<{ ended: Promise<void> }> {
    const { parts } = this;
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
        user: parts.users.take(name),
        alsoGroup: parts.kvmGroup,
        joined: parts.groups?.make(name, { cpuMillis: VCPUS * 1_000, memoryMib }) ?? [],
        changes: parts.changes.descriptor,
        namespace: undefined,
        files,
        diskFileMib: fileLimit(diskMib),
        monitor: monitorArguments({
          program: parts.monitor,
          isEmulated: parts.isEmulated,
          vcpus: VCPUS,
          memoryMib: MEMORY_MIB,
          disks,
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
      return yield* piecesOf(socket);
    } finally {
      signal.removeEventListener('abort', abort);
      abort();
    }
  }
}

async function end({ run }: SandboxPlaces, ended: Promise<void>): Promise<void> {
  await requestStop(run, 0);
  await ended;
}

/** The words of the monitor and of the kernel are for the log alone. */
async function refusalOf(places: SandboxPlaces): Promise<Error> {
  const failed = (await readRecord(places))?.failed ?? 'it ended or stood still before the last file';
  const cause = new Error(await lastWords(places));
  return new ExportRefusedError(`the machine that reads its disk has failed: ${failed}`, { cause });
}

/** Returns whether the archive is complete. */
async function* piecesOf(socket: Socket): AsyncGenerator<Buffer, boolean> {
  let kept: Buffer = Buffer.alloc(0);
  try {
    for await (const chunk of socket as AsyncIterable<Buffer>) {
      kept = Buffer.concat([kept, chunk]);
      while (kept.length >= LENGTH_BYTES) {
        const length = kept.readUInt32LE();
        if (length === 0) return true;
        if (length > LIMIT.archivePiece) return false;
        const end = LENGTH_BYTES + length;
        if (kept.length < end) break;
        yield kept.subarray(LENGTH_BYTES, end);
        kept = kept.subarray(end);
      }
    }
  } catch {
    // The machine has ended.
  }
  return false;
}
