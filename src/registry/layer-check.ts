import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { PassThrough, type Transform } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { MAX_FILES } from './limits.js';
import type { Descriptor } from './manifest.js';
import { PullError, type PullFailure } from './pull-error.js';
import { TarScan, type TarVisitor } from './tar-scan.js';
import type { Step } from './step.js';
import { uncompress } from './uncompress.js';
import { atLeast } from './at-least.js';

const GZIP_MAGIC = Buffer.from([0x1f, 0x8b]);
/** It has 32 headers at most, each of which is some work for the visitor. */
const PIECE_BYTES = 16 * 1_024;

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
  budget: Pick<ImageBudget, 'take'>,
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

function inflate(begin: Buffer, budget: Pick<ImageBudget, 'take'>, step: Step): Inflating {
  const isGzip = begin.subarray(0, GZIP_MAGIC.length).equals(GZIP_MAGIC);
  const input = isGzip ? createGunzip() : new PassThrough();
  const failed = new AbortController();
  const digest = measure(input, budget, step);
  digest.catch(() => failed.abort());
  return { input, digest, failed: failed.signal };
}

async function measure(
  uncompressed: AsyncIterable<Buffer>,
  budget: Pick<ImageBudget, 'take'>,
  step: Step,
): Promise<string> {
  const measure = new LayerMeasure(new TarScan(), budget, step);
  try {
    for await (const chunk of uncompressed) await measure.take(chunk);
    return measure.end();
  } catch (cause) {
    throw cause instanceof PullError
      ? cause
      : new PullError('broken', 'a layer cannot be uncompressed', { cause });
  }
}

class LayerMeasure {
  private readonly hash = createHash('sha256');
  private files = 0;

  constructor(
    private readonly scan: TarScan,
    private readonly budget: Pick<ImageBudget, 'take'>,
    private readonly step: Step,
  ) {}

  async take(chunk: Buffer): Promise<void> {
    await this.step(() => {
      this.hash.update(chunk);
      this.scan.push(chunk);
    });
    this.budget.take(chunk.length, this.scan.entries - this.files);
    this.files = this.scan.entries;
  }

  /** The digest. */
  end(): string {
    this.scan.end();
    return `sha256:${this.hash.digest('hex')}`;
  }
}

export interface LayerReading {
  budget: Pick<ImageBudget, 'take'>;
  step: Step;
  /** Undefined: the layer is only checked. */
  visitor: TarVisitor | undefined;
  /** Awaited after each piece of the uncompressed layer. */
  onPiece: () => Promise<void>;
}

/**
 * Gives the entries of a layer to the visitor. Throws PullError unless the uncompressed layer has the digest, or an
 * error of the source or of `onPiece`.
 */
export async function readLayer(
  layer: AsyncIterable<Buffer>,
  diffId: string,
  { budget, step, visitor, onPiece }: LayerReading,
): Promise<void> {
  const measure = new LayerMeasure(new TarScan(visitor), budget, step);
  for await (const chunk of uncompress(layer, step)) {
    for (let at = 0; at < chunk.length; at += PIECE_BYTES) {
      await measure.take(chunk.subarray(at, at + PIECE_BYTES));
      await onPiece();
    }
  }
  const digest = measure.end();
  if (digest !== diffId)
    throw new PullError('mismatch', `an uncompressed layer has the digest ${digest} instead of ${diffId}`);
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
