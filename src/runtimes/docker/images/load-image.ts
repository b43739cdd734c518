import type Docker from 'dockerode';
import { createHash, randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import { engineMessage, statusOf } from '../errors.js';
import { checkLayer, type ImageBudget, type Step } from './layer-check.js';
import type { Descriptor } from './manifest.js';
import { PullError } from './pull-error.js';
import { END_OF_ARCHIVE, tarHeader, tarPadding } from '../../../lib/tar-entry.js';

export interface ImageContent {
  name: string;
  config: Buffer;
  layers: readonly (Descriptor & { diffId: string })[];
}

export interface LoadOptions {
  budget: ImageBudget;
  openBlob: (digest: string) => Promise<AsyncIterable<Buffer>>;
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
 * The format of `docker save`. The manifest comes last: the engine can use no archive without it. The image store of containerd keeps what
 * arrived of a broken archive under the names of its files, and refuses two writers of one name: no two archives share a name.
 */
async function* writeArchive(
  { name: imageName, config, layers }: ImageContent,
  { budget, openBlob, onSent, step }: LoadOptions,
): AsyncGenerator<Buffer> {
  const names = new Map<string, string>();
  const archive = randomUUID();
  const configName = `${archive}.json`;
  yield* file(configName, config);
  for (const { digest, size, diffId } of layers) {
    const key = `${digest} ${diffId}`;
    if (names.has(key)) continue;
    const name = `${archive}-${names.size}.layer`;
    names.set(key, name);
    const blob = verified(await openBlob(digest), { digest, size }, step);
    yield tarHeader(name, size);
    yield* checkLayer(blob, diffId, budget, step);
    yield tarPadding(size);
  }
  const Layers = layers.map(({ digest, diffId }) => names.get(`${digest} ${diffId}`));
  const manifest = [{ Config: configName, RepoTags: [imageName], Layers }];
  yield* file('manifest.json', Buffer.from(JSON.stringify(manifest)));
  yield END_OF_ARCHIVE;
  onSent();
}

function* file(name: string, content: Buffer): Generator<Buffer> {
  yield tarHeader(name, content.length);
  yield content;
  yield tarPadding(content.length);
}

/** Passes a blob on, and throws PullError unless it has the size and the digest of its descriptor. */
export async function* verified(
  blob: AsyncIterable<Buffer>,
  { digest, size }: Pick<Descriptor, 'digest' | 'size'>,
  step: Step,
): AsyncGenerator<Buffer> {
  const hash = createHash('sha256');
  let length = 0;
  for await (const chunk of blob) {
    await step(() => hash.update(chunk));
    length += chunk.length;
    if (length > size) throw new PullError('mismatch', `the blob ${digest} has more than ${size} bytes`);
    yield chunk;
  }
  const found = `sha256:${hash.digest('hex')}`;
  if (length !== size || found !== digest) {
    throw new PullError('mismatch', `the blob ${digest} has ${length} bytes and the digest ${found}`);
  }
}
