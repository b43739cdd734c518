import type { FileHandle } from 'node:fs/promises';
import { Readable } from 'node:stream';
import type { Context } from '../../context.js';
import type { Step } from '../storage/growth.js';
import { openFile } from './entry.js';
import { stepsOf } from './steps.js';
import { findVolume, type VolumeTarget } from './target.js';
import { translateErrors } from './translate-errors.js';

const CHUNK_BYTES = 128 * 1024;

export async function read(
  ctx: Context,
  target: VolumeTarget,
  path: string,
  abandoned: AbortSignal,
): Promise<{ content: Readable; size: number }> {
  await findVolume(ctx, target);
  return translateErrors(async () => {
    const { file, stats } = await openFile(ctx, target, path);
    const step = stepsOf(ctx, target, abandoned);
    return { content: streamOf(file, stats.size, step), size: stats.size };
  });
}

function streamOf(file: FileHandle, size: number, step: Step): Readable {
  const content = Readable.from(bytesOf(file, size, step), { objectMode: false, highWaterMark: CHUNK_BYTES });
  // Also for a stream that nobody reads.
  content.once('close', () => void file.close());
  return content;
}

/** Exactly the promised `size`: a truncated file breaks the answer off, so that no client takes it for complete. */
async function* bytesOf(file: FileHandle, size: number, step: Step): AsyncIterable<Buffer> {
  for (let position = 0; position < size;) {
    const length = Math.min(CHUNK_BYTES, size - position);
    const piece = Buffer.allocUnsafe(length);
    const { bytesRead, buffer } = await step(() => file.read(piece, 0, length, position));
    if (bytesRead === 0) throw new Error('the file became shorter while it was read');
    position += bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}
