import type { Context } from '../context.js';
import { addMillis } from '../lib/instant.js';
import { deleteExpired } from './queries.js';
import { KEEP_MS } from './write.js';

const BATCH = 1_000;

export async function deleteExpiredKeys(ctx: Context, signal: AbortSignal): Promise<void> {
  let deleted: number;
  do {
    deleted = await deleteExpired(ctx.pool, addMillis(ctx.now(), -KEEP_MS), BATCH);
  } while (deleted === BATCH && !signal.aborted);
}
