import type { FileHandle } from 'node:fs/promises';
import { Readable } from 'node:stream';
import type { Context } from '../../context.js';
import { openFile } from './entry.js';
import { refusing } from './errors.js';
import { readable, type Target } from './volume.js';

const CHUNK_BYTES = 128 * 1024;

/** The bytes of a file as it was long when it was opened. `content` closes the file, however it ends. */
export async function read(
  ctx: Context,
  target: Target,
  path: string,
): Promise<{ content: Readable; size: number }> {
  await readable(ctx, target);
  return refusing(async () => {
    const { file, stats } = await openFile(ctx, target, path);
    return { content: streamOf(file, stats.size), size: stats.size };
  });
}

/**
 * Exactly `size` bytes, as that is the length that was promised: what a guest appends meanwhile is left out, and when it
 * cuts the file short the answer is cut off, so that nobody takes it for whole.
 */
function streamOf(file: FileHandle, size: number): Readable {
  let position = 0;
  return new Readable({
    highWaterMark: CHUNK_BYTES,
    read() {
      const length = Math.min(CHUNK_BYTES, size - position);
      if (length === 0) {
        this.push(null);
        return;
      }
      file.read(Buffer.allocUnsafe(length), 0, length, position).then(
        ({ bytesRead, buffer }) => {
          position += bytesRead;
          if (bytesRead === 0) this.destroy(new Error('the file became shorter while it was read'));
          else this.push(buffer.subarray(0, bytesRead));
        },
        (error: Error) => this.destroy(error),
      );
    },
    destroy(error, done) {
      file.close().then(
        () => done(error),
        (cause: Error) => done(error ?? cause),
      );
    },
  });
}
