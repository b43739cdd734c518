import { createHash } from 'node:crypto';
import type {
  EngineArchives,
  ForeignImage,
  LoadedSnapshot,
  SnapshotIds,
  SnapshotImage,
} from '../../engine/snapshot-archives.js';
import { END_OF_ARCHIVE } from '../../lib/tar-entry.js';
import { imageConfigOf } from '../../registry/image-config.js';
import { readLayer } from '../../registry/layer-check.js';
import type { SimulatedSnapshots } from './snapshots.js';

/** The only layer of each snapshot: nothing is on a simulated disk. */
const EMPTY_LAYER = `sha256:${createHash('sha256').update(END_OF_ARCHIVE).digest('hex')}`;

/** Checks images as an engine does, and keeps only their records. */
export class SimulatedArchives implements EngineArchives {
  readonly architecture = process.arch === 'arm64' ? 'arm64' : 'amd64';

  constructor(private readonly snapshots: SimulatedSnapshots) {}

  async open(
    { orgId, snapshotId }: SnapshotIds,
    { room }: Parameters<EngineArchives['open']>[1],
  ): Promise<SnapshotImage | undefined> {
    const all = await this.snapshots.list();
    if (!all.some((one) => one.orgId === orgId && one.snapshotId === snapshotId)) return undefined;
    room.check(END_OF_ARCHIVE.length);
    return {
      platform: { os: 'linux', architecture: this.architecture },
      created: '1970-01-01T00:00:00Z',
      config: imageConfigOf({}),
      layers: [{ diffId: EMPTY_LAYER, size: END_OF_ARCHIVE.length }],
      async *read() {
        yield await Promise.resolve({ begin: EMPTY_LAYER });
        yield { bytes: END_OF_ARCHIVE };
      },
    };
  }

  async load(
    ids: SnapshotIds,
    { layers }: ForeignImage,
    { step, signal, budget }: Parameters<EngineArchives['load']>[2],
  ): Promise<LoadedSnapshot> {
    let bytes = 0;
    for (const { diffId, open } of layers) {
      const counted = {
        take(more: number, files: number) {
          bytes += more;
          budget.take(more, files);
        },
      };
      const onPiece = async () => Promise.resolve(signal.throwIfAborted());
      await readLayer(await open(), diffId, { budget: counted, step, visitor: undefined, onPiece });
    }
    await this.snapshots.keep(ids);
    return { bytes, contentDigest: layers.at(-1)!.diffId };
  }
}
