import { createHash } from 'node:crypto';
import type { Stats } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type {
  EngineArchives,
  ForeignImage,
  LoadedSnapshot,
  SnapshotIds,
  SnapshotImage,
} from '../../../engine/snapshot-archives.js';
import { ignoreMissing } from '../../../volumes/storage/guest-path.js';
import { createDisk } from '../disks/create-disk.js';
import { sealLayer } from '../disks/copy-disk.js';
import { allocatedBytes, layerFile } from '../disks/layers.js';
import { BASE_FILE, buildBase } from '../images/build-base.js';
import { ownArchitecture } from '../images/own-architecture.js';
import type { MicrovmParts } from '../parts.js';
import { exportsDirectory } from '../places.js';
import { ArchiveMachines } from './archive-machine.js';
import { ArchiveSpool } from './archive-spool.js';
import type { StoredSnapshot } from './snapshot-store.js';

/** More than a disk that is full of small files has as an archive. */
export const MOST_OF_DISK = 2;
const MIB = 1024 * 1024;
export const FEWEST_BYTES = 64 * MIB;
/** The headers of the two million files that an image may have. An empty one takes 40 bytes of a base. */
export const HEADER_BYTES = 1024 * MIB;

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
    const files = await Promise.all(
      [snapshot.directory, join(snapshot.directory, BASE_FILE)].map(async (path) => stat(path)),
    ).catch(ignoreMissing);
    // Deleted meanwhile.
    if (!files) return undefined;
    const [{ mtime: created }, { size: baseBytes }] = files as [Stats, Stats];
    const { spool, diffId } = await this.receive(snapshot, baseBytes, options);
    // A client that leaves reads nothing more.
    const close = async () => spool.close();
    const abort = () => void close();
    options.signal.addEventListener('abort', abort, { once: true });
    return {
      platform: { os: 'linux', architecture: this.architecture },
      created: created.toISOString(),
      config: { cmd: [], exposedPorts: [], volumes: [], ...snapshot.image },
      layers: [{ diffId, size: spool.size }],
      close,
      async *read() {
        try {
          yield { begin: diffId };
          for await (const bytes of spool.read()) yield { bytes };
        } finally {
          options.signal.removeEventListener('abort', abort);
          await close();
        }
      },
    };
  }

  private async receive(
    snapshot: StoredSnapshot,
    baseBytes: number,
    { step, signal, room }: Parameters<EngineArchives['open']>[1],
  ): Promise<{ spool: ArchiveSpool; diffId: string }> {
    const spool = await ArchiveSpool.open(exportsDirectory(this.parts.directory), room, {
      whole: FEWEST_BYTES + MOST_OF_DISK * (baseBytes + snapshot.diskMib * MIB),
      kept: HEADER_BYTES + MOST_OF_DISK * (baseBytes + snapshot.bytes),
    });
    try {
      const hash = createHash('sha256');
      for await (const piece of this.machines.read(snapshot, signal)) {
        await spool.add(piece);
        await step(() => hash.update(piece));
      }
      // Nobody would read the file.
      signal.throwIfAborted();
      await spool.finish();
      return { spool, diffId: `sha256:${hash.digest('hex')}` };
    } catch (error) {
      await spool.close();
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
      const base = await this.parts.images.turns.run(
        orgId,
        async () => buildBase(layers, { directory: draft, budget, step, signal }),
        signal,
      );
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
