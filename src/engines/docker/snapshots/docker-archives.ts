import type {
  EngineArchives,
  ForeignImage,
  LoadedSnapshot,
  SnapshotIds,
  SnapshotImage,
} from '../../../engine/snapshot-archives.js';
import { configDocument, imageConfigOf } from '../../../registry/image-config.js';
import { PullError } from '../../../registry/pull-error.js';
import type { Step } from '../../../registry/step.js';
import { loadImage } from '../images/load-image.js';
import type { DockerParts } from '../parts.js';
import { findLayers, readLayers, type LayerFiles } from './saved-layers.js';
import {
  capturedOf,
  inspectSnapshot,
  labelsFor,
  snapshotName,
  type InspectedImage,
} from './snapshot-image.js';

/** An image has 125 layers at most, so an entry has a few KiB. */
const MOST_KNOWN = 1_000;

/** Snapshots as streams of layers, by the archives that the engine saves and loads. */
export class DockerArchives implements EngineArchives {
  readonly architecture: string;
  /** By image. A layer never changes, so they are looked for once. */
  private readonly known = new Map<string, LayerFiles>();
  /** Those that the engine writes for exports: no measurement of the disk has all of them yet. */
  private writtenBytes = 0;

  constructor(private readonly parts: Pick<DockerParts, 'docker' | 'untimed' | 'instanceId' | 'images'>) {
    this.architecture = parts.images.architecture;
  }

  async open(
    ids: SnapshotIds,
    { step, signal, room }: Parameters<EngineArchives['open']>[1],
  ): Promise<SnapshotImage | undefined> {
    const { docker } = this.parts;
    const image = await inspectSnapshot(docker, ids);
    if (!image) return undefined;
    room.check(this.writtenBytes + image.Size);
    this.writtenBytes += image.Size;
    let isWritten = false;
    const close = async () => {
      if (!isWritten) this.writtenBytes -= image.Size;
      isWritten = true;
      return Promise.resolve();
    };
    signal.addEventListener('abort', () => void close(), { once: true });
    try {
      return await this.openImage(image, { step, signal }, close);
    } catch (error) {
      await close();
      throw error;
    }
  }

  private async openImage(
    image: InspectedImage,
    reading: { step: Step; signal: AbortSignal },
    close: () => Promise<void>,
  ): Promise<SnapshotImage> {
    const { untimed } = this.parts;
    const diffIds = image.RootFS.Layers ?? [];
    const files = this.known.get(image.Id) ?? (await findLayers(untimed, image.Id, diffIds, reading));
    if (this.known.size >= MOST_KNOWN) this.known.clear();
    this.known.set(image.Id, files);
    const sizes = new Map([...files.values()].map(({ diffId, size }) => [diffId, size]));
    const { Os: os, Architecture: architecture, Variant } = image as InspectedImage & { Variant?: string };
    return {
      platform: { os, architecture, variant: Variant === '' ? undefined : Variant },
      created: image.Created,
      // The engine has more fields, and some are of this installation.
      config: imageConfigOf(image.Config),
      layers: diffIds.map((diffId) => ({ diffId, size: sizes.get(diffId)! })),
      close,
      async *read() {
        try {
          yield* readLayers(untimed, image.Id, files, reading);
        } finally {
          await close();
        }
      },
    };
  }

  async load(
    ids: SnapshotIds,
    image: ForeignImage,
    { step, signal, budget }: Parameters<EngineArchives['load']>[2],
  ): Promise<LoadedSnapshot> {
    const { docker, untimed, instanceId } = this.parts;
    const layers = new Map(image.layers.map((layer) => [layer.digest, layer]));
    const config = Buffer.from(JSON.stringify(configurationOf(image, { ...ids, instanceId })));
    // The archive for the engine is of the service: it has one name, and no file name of the caller.
    await loadImage(
      untimed,
      { name: snapshotName(ids.snapshotId), config, layers: image.layers },
      {
        budget,
        openBlob: async ({ digest }) => layers.get(digest)!.open(),
        signal,
        step,
        onSent: () => undefined,
      },
    );
    const made = await inspectSnapshot(docker, ids);
    const diffIds = image.layers.map(({ diffId }) => diffId);
    if (made === undefined || JSON.stringify(made.RootFS.Layers) !== JSON.stringify(diffIds))
      throw new PullError('engine', 'the engine has no image with the layers of the archive');
    return capturedOf(made, undefined, instanceId);
  }
}

function configurationOf(
  { platform, created, config, digest, layers }: ForeignImage,
  ids: SnapshotIds & { instanceId: string },
): object {
  return {
    ...platform,
    created,
    config: { ...configDocument(config), Labels: labelsFor(ids, { digest, baseBytes: 0 }) },
    rootfs: { type: 'layers', diff_ids: layers.map(({ diffId }) => diffId) },
  };
}
