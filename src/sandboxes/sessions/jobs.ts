import type { Context } from '../../context.js';
import { inTransaction } from '../../db/transaction.js';
import { addMillis, microsOf } from '../../lib/instant.js';
import { takeLostSessions } from './queries.js';
import { recordEnd } from './recorder.js';

/** A session that was not renewed for so long has lost its process, in milliseconds. */
const LOST_MS = 60_000;
const BATCH = 100;

/** Ends the sessions whose process is gone. */
export async function endLostSessions(
  { pool, now }: Pick<Context, 'pool' | 'now'>,
  signal: AbortSignal,
): Promise<void> {
  let count: number;
  do {
    count = await inTransaction(pool, async (tx) => {
      const lost = await takeLostSessions(tx, addMillis(now(), -LOST_MS), BATCH);
      for (const row of lost) {
        const duration = Number((microsOf(row.seen_at) - microsOf(row.opened_at)) / 1000n);
        const unknown = { exit_code: null, bytes_in: null, bytes_out: null, file_writes: null };
        await recordEnd(tx, row, { reason: 'cut_off', duration_ms: duration, ...unknown }, now());
      }
      return lost.length;
    });
  } while (count === BATCH && !signal.aborted);
}
