import type Docker from 'dockerode';
import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import { engineMessage, statusOf } from '../errors.js';
import { checkLayer, type ImageBudget } from '../../../registry/layer-check.js';
import type { Step } from '../../../registry/step.js';
import type { Descriptor } from '../../../registry/manifest.js';
import { PullError } from '../../../registry/pull-error.js';
import { END_OF_ARCHIVE, tarHeader, tarPadding } from '../../../lib/tar-entry.js';

/** `digest`: equal layers have equal ones. */
type ImageLayer = Pick<Descriptor, 'digest' | 'size'> & { diffId: string };

export interface ImageContent {
  name: string;
  config: Buffer;
  layers: readonly ImageLayer[];
}

export interface LoadOptions {
  budget: Pick<ImageBudget, 'take'>;
  /** The content has the promised size, or the iteration throws. */
  openBlob: (layer: ImageLayer) => Promise<AsyncIterable<Buffer>>;
  signal: AbortSignal;
  step: Step;
  /** Called when the rest is the work of the engine. */
  onSent: () => void;
}

/** Streams an image from its registry into the engine. Nothing is loaded unless every digest is right. */
export async function loadImage(docker: Docker, content: ImageContent, options: LoadOptions): Promise<void> {
  const archive = Readable.from(writeArchive(content, options), { objectMode: false });
  let broken: unknown;
  archive.once('error', (error) => (broken = error));
  try {
    const progress = await docker.loadImage(archive, { quiet: true, abortSignal: options.signal });
    const failure = await readFailure(docker, progress);
    if (failure !== undefined) throw new PullError('engine', failure);
  } catch (error) {
    // The client library ends the request when the archive breaks.
    if (broken !== undefined) throw broken;
    if (statusOf(error) === undefined) throw error;
    throw new PullError('engine', engineMessage(error), { cause: error });
  } finally {
    archive.destroy();
  }
}

/**
 * Gives a name to layers that the engine has, under another configuration. The archive has none of them: an engine with
 * a graph driver reads only the layers that it lacks. Resolves to the reason of a failure.
 */
export async function loadConfiguration(
  docker: Docker,
  { name, config, layers }: { name: string; config: Buffer; layers: number },
): Promise<string | undefined> {
  const archive = randomUUID();
  const Layers = Array.from({ length: layers }, (_, index) => `${archive}-${index}.layer`);
  const manifest = [{ Config: `${archive}.json`, RepoTags: [name], Layers }];
  const files = [
    ...file(`${archive}.json`, config),
    ...file('manifest.json', Buffer.from(JSON.stringify(manifest))),
    END_OF_ARCHIVE,
  ];
  return readFailure(docker, await docker.loadImage(Readable.from(files), { quiet: true }));
}

/** The client library ignores errors after the first byte. */
async function readFailure(docker: Docker, progress: NodeJS.ReadableStream): Promise<string | undefined> {
  return new Promise((resolve, reject) => {
    docker.modem.followProgress(progress, (broken, lines: { error?: string }[] | null) => {
      if (broken) reject(broken);
      else resolve(lines?.find(({ error }) => error !== undefined)?.error);
    });
  });
}

/**
 * The format of `docker save`. The manifest comes last: the engine can use no archive without it. The image store of
 * containerd keeps what arrived of a broken archive under the names of its files, and refuses two writers of one name.
 * So no two archives share a name.
 */
async function* writeArchive(
  { name: imageName, config, layers }: ImageContent,
  { budget, openBlob, onSent, step }: LoadOptions,
): AsyncGenerator<Buffer> {
  const known = new Map<string, { name: string; cost: LayerCost }>();
  const archive = randomUUID();
  const configName = `${archive}.json`;
  yield* file(configName, config);
  for (const layer of layers) {
    const { size, diffId } = layer;
    const before = known.get(keyOf(layer));
    if (before) {
      // The engine unpacks a layer once for each place in the image.
      budget.take(before.cost.bytes, before.cost.files);
      continue;
    }
    const name = `${archive}-${known.size}.layer`;
    const cost = new LayerCost(budget);
    known.set(keyOf(layer), { name, cost });
    yield tarHeader(name, size);
    yield* checkLayer(await openBlob(layer), diffId, cost, step);
    yield tarPadding(size);
  }
  const Layers = layers.map((layer) => known.get(keyOf(layer))!.name);
  const manifest = [{ Config: configName, RepoTags: [imageName], Layers }];
  yield* file('manifest.json', Buffer.from(JSON.stringify(manifest)));
  yield END_OF_ARCHIVE;
  onSent();
}

function keyOf({ digest, diffId }: ImageLayer): string {
  return `${digest} ${diffId}`;
}

/** Counts what a layer takes of the budget. */
class LayerCost {
  bytes = 0;
  files = 0;

  constructor(private readonly budget: Pick<ImageBudget, 'take'>) {}

  take(bytes: number, files: number): void {
    this.bytes += bytes;
    this.files += files;
    this.budget.take(bytes, files);
  }
}

function* file(name: string, content: Buffer): Generator<Buffer> {
  yield tarHeader(name, content.length);
  yield content;
  yield tarPadding(content.length);
}
