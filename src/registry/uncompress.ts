import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import { atLeast } from './at-least.js';
import { PullError } from './pull-error.js';
import type { Step } from './step.js';
import { isZstd, unzstd } from './unzstd.js';

const GZIP_MAGIC = Buffer.from([0x1f, 0x8b]);
const LONGEST_MAGIC = 4;
const CHUNK_BYTES = 64 * 1_024;

/** Uncompresses what is gzip or zstd, and passes everything else on. Throws PullError, or an error of the source. */
export async function* uncompress(source: AsyncIterable<Buffer>, step: Step): AsyncGenerator<Buffer> {
  const chunks = atLeast(LONGEST_MAGIC, source);
  const first = await chunks.next();
  if (first.done === true) return;
  const all = withFirst(first.value, chunks);
  if (first.value.subarray(0, GZIP_MAGIC.length).equals(GZIP_MAGIC)) yield* gunzip(all);
  else if (isZstd(first.value)) yield* unzstd(all, step);
  else yield* all;
}

async function* withFirst(first: Buffer, others: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  yield first;
  yield* others;
}

async function* gunzip(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const gunzip = createGunzip({ chunkSize: CHUNK_BYTES });
  let sourceError: unknown;
  let length = 0;
  async function* counted(): AsyncGenerator<Buffer> {
    try {
      for await (const chunk of source) {
        length += chunk.length;
        yield chunk;
      }
    } catch (error) {
      sourceError = error;
      throw error;
    }
  }
  // The reader below gets its errors.
  const fed = pipeline(counted(), gunzip).catch(() => undefined);
  try {
    for await (const chunk of gunzip as AsyncIterable<Buffer>) yield chunk;
  } catch (cause) {
    throw sourceError ?? new PullError('broken', 'a layer cannot be uncompressed', { cause });
  } finally {
    gunzip.destroy();
    await fed;
  }
  if (gunzip.bytesWritten !== length)
    throw new PullError('broken', 'a layer has bytes after its compressed end');
}
