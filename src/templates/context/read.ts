import type { Sql } from '../../db/pool.js';
import type { Step } from '../../registry/step.js';
import { ContextError, ContextReader, type ContextEntry } from './entries.js';
import { PIECE_BYTES, readPiece, type ContextKey } from './queries.js';

/** The context of a build, as it was received. */
export interface StoredContext {
  entries: ReadonlyMap<string, ContextEntry>;
  /** The pieces of a file, in their order. */
  read(entry: ContextEntry): AsyncIterable<Buffer>;
}

export const NO_CONTEXT: StoredContext = {
  entries: new Map(),
  async *read() {},
};

export async function openContext(sql: Sql, key: ContextKey, step: Step): Promise<StoredContext> {
  const reader = new ContextReader();
  for (let position = 0; ; position += 1) {
    const piece = await readPiece(sql, key, position);
    if (!piece) break;
    await reader.push(piece, step);
    if (piece.length < PIECE_BYTES) break;
  }
  const entries = reader.end();
  let latest: { position: number; bytes: Buffer } | undefined;
  const pieceAt = async (position: number): Promise<Buffer> => {
    if (latest?.position === position) return latest.bytes;
    const bytes = await readPiece(sql, key, position);
    if (!bytes) throw new ContextError('the context of the build is gone: repeat the request');
    latest = { position, bytes };
    return bytes;
  };
  return {
    entries,
    async *read({ position, size }) {
      for (let at = position; at < position + size;) {
        const piece = await pieceAt(Math.floor(at / PIECE_BYTES));
        const begin = at % PIECE_BYTES;
        const part = piece.subarray(begin, Math.min(piece.length, begin + position + size - at));
        if (part.length === 0)
          throw new ContextError('the context of the build is incomplete: repeat the request');
        yield part;
        at += part.length;
      }
    },
  };
}
