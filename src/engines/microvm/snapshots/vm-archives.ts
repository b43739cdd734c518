import { Buffer } from 'node:buffer';
import { createHash } from 'node:crypto';
import { stat, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import {
  ExportRefusedError,
  type EngineArchives,
  type ForeignImage,
  type LoadedSnapshot,
  type SnapshotIds,
  type SnapshotImage,
} from '../../../engine/snapshot-archives.js';
import { createDisk } from '../disks/create-disk.js';
import { sealLayer } from '../disks/copy-disk.js';
import { allocatedBytes, layerFile } from '../disks/layers.js';
import { BASE_FILE, buildBase } from '../images/build-base.js';
import { ownArchitecture } from '../images/own-architecture.js';
import type { MicrovmParts } from '../parts.js';
import { ArchiveMachines } from './archive-machine.js';
import type { StoredSnapshot } from './snapshot-store.js';

/** More than a disk that is full of small files has as an archive. */
export const MOST_OF_DISK = 2;
const MIB = 1024 * 1024;
export const FEWEST_BYTES = 64 * MIB;
/** The reserve of the disk is checked for each of them. */
const CHECKED_BYTES = 16 * MIB;
const PIECE_BYTES = 64 * 1024;

/** Snapshots as images. An export has all files in one layer, as a sandbox sees them. */
export class VmArchives implements EngineArchives {
  readonly architecture = ownArchitecture();
  readonly machines: ArchiveMachines;

  constructor(private readonly parts: MicrovmParts) {
    this.machines = new ArchiveMachines(parts);
  }

  /** The archive is on the disk before the first byte leaves: its digest comes first. */
  async open(
    { orgId, snapshotId }: SnapshotIds,
    options: Parameters<EngineArchives['open']>[1],
  ): Promise<SnapshotImage | undefined> {
    const snapshot = await this.parts.snapshots.find(snapshotId);
    if (snapshot?.orgId !== orgId) return undefined;
    const { mtime: created } = await stat(snapshot.directory);
    const spool = await this.receive(snapshot, options);
    const { diffId, size } = spool;
    // A client that leaves reads nothing more.
    const close = async () => spool.file.close();
    const abort = () => void close();
    options.signal.addEventListener('abort', abort, { once: true });
    return {
      platform: { os: 'linux', architecture: this.architecture },
      created: created.toISOString(),
      config: { cmd: [], exposedPorts: [], volumes: [], ...snapshot.image },
      layers: [{ diffId, size }],
      close,
      async *read() {
        try {
          yield { begin: diffId };
          for (let at = 0; at < size;) {
            const { bytesRead, buffer } = await spool.file.read(
              Buffer.alloc(PIECE_BYTES),
              0,
              PIECE_BYTES,
              at,
            );
            if (bytesRead === 0) throw new Error('the archive of the snapshot was cut off');
            yield { bytes: buffer.subarray(0, bytesRead) };
            at += bytesRead;
          }
        } finally {
          options.signal.removeEventListener('abort', abort);
          await close();
        }
      },
    };
  }

  /** The file has no name, so nothing of it outlives this process. */
  private async receive(
    snapshot: StoredSnapshot,
    { step, signal, needs }: Parameters<EngineArchives['open']>[1],
  ): Promise<{ file: FileHandle; diffId: string; size: number }> {
    const { size: baseBytes } = await stat(join(snapshot.directory, BASE_FILE));
    const most = FEWEST_BYTES + MOST_OF_DISK * (baseBytes + snapshot.diskMib * MIB);
    const file = await this.machines.openSpool();
    try {
      const hash = createHash('sha256');
      let size = 0;
      let checked = 0;
      for await (const piece of this.machines.read(snapshot, signal)) {
        size += piece.length;
        if (size > most) throw new ExportRefusedError(TOO_LARGE);
        if (size > checked) needs((checked += CHECKED_BYTES) - size);
        await file.writeFile(piece);
        await step(() => hash.update(piece));
      }
      // Nobody would read the file.
      signal.throwIfAborted();
      return { file, diffId: `sha256:${hash.digest('hex')}`, size };
    } catch (error) {
      await file.close();
      throw error;
    }
  }

  async load(
    { orgId, snapshotId }: SnapshotIds,
    { config, digest, layers }: ForeignImage,
    { step, signal, budget }: Parameters<EngineArchives['load']>[2],
  ): Promise<LoadedSnapshot> {
    const { snapshots, defaultDiskMib: diskMib } = this.parts;
    const { bytes, contentDigest } = await snapshots.add(async (draft) => {
      const base = await buildBase(layers, { directory: draft, budget, step, signal });
      const disk = layerFile(draft, 0);
      await createDisk(disk, diskMib);
      const sealed = await sealLayer(disk, diskMib);
      if (typeof sealed === 'string') throw new Error(`the disk of the import is not valid: ${sealed}`);
      const { env, entrypoint, user, workdir, stopSignal, cmd, exposedPorts, volumes } = config;
      return {
        orgId,
        snapshotId,
        diskMib,
        imageDigest: digest,
        image: { env, entrypoint, user, workdir, stopSignal, cmd, exposedPorts, volumes },
        layers: 1,
        bytes: await allocatedBytes([join(draft, BASE_FILE), disk]),
        contentDigest: `sha256:${base.sha256}`,
      };
    });
    return { bytes, contentDigest, diskMib };
  }
}

const TOO_LARGE =
  'its files have more than twice the bytes of its disk: remove files with holes, and capture the sandbox again';
