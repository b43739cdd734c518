import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { PassThrough, type Readable, type Transform } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { MAX_FILES } from './limits.js';
import type { Descriptor } from './manifest.js';
import { PullError, type PullFailure } from './pull-error.js';
import { TarScan } from './tar-scan.js';

/** Runs work on a few bytes when an iteration of the event loop has time for it. */
export type Step = <T>(work: () => T) => Promise<T>;

const GZIP_MAGIC = Buffer.from([0x1f, 0x8b]);

export interface SizeLimit {
  bytes: number;
  beyond: PullFailure;
}

export function checkSize(bytes: number, limit: SizeLimit): void {
  if (bytes > limit.bytes)
    throw new PullError(limit.beyond, `the layers have more than ${limit.bytes} bytes`);
}

export class ImageBudget {
  private taken = 0;
  private files = MAX_FILES;

  constructor(
    private readonly limit: SizeLimit,
    private readonly onBytes: (bytes: number) => void,
  ) {}

  take(bytes: number, files: number): void {
    this.onBytes(bytes);
    this.taken += bytes;
    this.files -= files;
    checkSize(this.taken, this.limit);
    if (this.files < 0) throw new PullError('too_many_parts', `more than ${MAX_FILES} entries`);
  }
}

/**
 * Passes a layer on, and uncompresses it on the way. The digest of the uncompressed layer is the proof that the
 * registry has its content. An engine that has a layer of this digest never reads the bytes that it is given.
 */
export async function* checkLayer(
  layer: AsyncIterable<Buffer>,
  diffId: string,
  budget: ImageBudget,
  step: Step,
): AsyncGenerator<Buffer> {
  let inflating: Inflating | undefined;
  let length = 0;
  try {
    for await (const chunk of atLeast(GZIP_MAGIC.length, layer)) {
      inflating ??= inflate(chunk, budget, step);
      const { input, digest, failed } = inflating;
      length += chunk.length;
      if (!input.write(chunk)) await once(input, 'drain', { signal: failed }).catch(() => digest);
      yield chunk;
    }
    inflating ??= inflate(Buffer.alloc(0), budget, step);
    inflating.input.end();
    const digest = await inflating.digest;
    const { bytesWritten = length } = inflating.input as { bytesWritten?: number };
    if (digest !== diffId || bytesWritten !== length) {
      throw new PullError('mismatch', `an uncompressed layer has the digest ${digest} instead of ${diffId}`);
    }
  } finally {
    inflating?.input.destroy();
  }
}

interface Inflating {
  input: Transform;
  digest: Promise<string>;
  failed: AbortSignal;
}

function inflate(begin: Buffer, budget: ImageBudget, step: Step): Inflating {
  const isGzip = begin.subarray(0, GZIP_MAGIC.length).equals(GZIP_MAGIC);
  const input = isGzip ? createGunzip() : new PassThrough();
  const failed = new AbortController();
  const digest = measure(input, budget, step);
  digest.catch(() => failed.abort());
  return { input, digest, failed: failed.signal };
}

async function measure(uncompressed: Readable, budget: ImageBudget, step: Step): Promise<string> {
  const hash = createHash('sha256');
  const scan = new TarScan();
  let files = 0;
  try {
    for await (const chunk of uncompressed as AsyncIterable<Buffer>) {
      await step(() => {
        hash.update(chunk);
        scan.push(chunk);
      });
      budget.take(chunk.length, scan.entries - files);
      files = scan.entries;
    }
    scan.end();
  } catch (cause) {
    throw cause instanceof PullError
      ? cause
      : new PullError('broken', 'a layer cannot be uncompressed', { cause });
  }
  return `sha256:${hash.digest('hex')}`;
}

async function* atLeast(length: number, chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let begin: Buffer | undefined = Buffer.alloc(0);
  for await (const chunk of chunks) {
    if (!begin) yield chunk;
    else {
      begin = Buffer.concat([begin, chunk]);
      if (begin.length < length) continue;
      yield begin;
      begin = undefined;
    }
  }
  if (begin && begin.length > 0) yield begin;
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
