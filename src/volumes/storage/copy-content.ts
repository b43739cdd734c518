import { constants } from 'node:fs';
import { copyFile, type FileHandle } from 'node:fs/promises';
import { fdPath } from './guest-path.js';
import type { Growth } from './growth.js';

const PIECE_BYTES = 512 * 1024;
const BLOCK_BYTES = 16 * 1024;
const ZEROES = Buffer.alloc(BLOCK_BYTES);
const NOT_CLONEABLE = new Set(['ENOTSUP', 'EOPNOTSUPP', 'ENOTTY', 'EXDEV', 'EINVAL', 'ENOSYS']);

export async function cloneContent(source: FileHandle, target: FileHandle): Promise<boolean> {
  try {
    await copyFile(fdPath(source), fdPath(target), constants.COPYFILE_FICLONE_FORCE);
    return true;
  } catch (error) {
    if (NOT_CLONEABLE.has((error as NodeJS.ErrnoException).code ?? '')) return false;
    throw error;
  }
}

/** Copies the first `size` bytes in pieces. Blocks of zeroes become holes. */
export async function copyContent(
  source: FileHandle,
  target: FileHandle,
  size: number,
  growth: Growth,
): Promise<void> {
  const buffer = Buffer.allocUnsafe(PIECE_BYTES);
  for (let position = 0; position < size;) {
    const length = Math.min(PIECE_BYTES, size - position);
    const { bytesRead } = await growth.step(() => source.read(buffer, 0, length, position));
    if (bytesRead === 0) break;
    for (const [start, end] of dataIn(buffer.subarray(0, bytesRead))) {
      await growth.write(target, buffer.subarray(start, end), position + start);
    }
    position += bytesRead;
  }
  await growth.step(() => target.truncate(size));
}

function* dataIn(piece: Buffer): Iterable<[start: number, end: number]> {
  let start: number | undefined;
  for (let at = 0; at < piece.length; at += BLOCK_BYTES) {
    const end = Math.min(at + BLOCK_BYTES, piece.length);
    const isHole = piece.compare(ZEROES, 0, end - at, at, end) === 0;
    if (!isHole) start ??= at;
    else if (start !== undefined) {
      yield [start, at];
      start = undefined;
    }
  }
  if (start !== undefined) yield [start, piece.length];
}
