import type { Context } from '../../context.js';
import { inTransaction } from '../../db/transaction.js';
import { microsOf } from '../../lib/instant.js';
import { readClockMs, takeLostSessions, type SessionRow } from './queries.js';
import { recordEnd } from './recorder.js';

const BATCH = 100;
const UNKNOWN = { exit_code: null, bytes_in: null, bytes_out: null, file_writes: null };

/**
 * Makes the job that ends the sessions whose process is gone. After an outage of the database, or a leap of its clock,
 * it first leaves the other processes time to renew theirs.
 */
export function makeLostSessionEnds(): (
  ctx: Pick<Context, 'pool' | 'now' | 'settings'>,
  signal: AbortSignal,
) => Promise<void> {
  let answersSince: number | undefined;
  let clockLead = Infinity;
  return async function endLostSessions({ pool, now, settings }, signal) {
    const { sessionLostMs } = settings;
    try {
      const lead = (await readClockMs(pool)) - performance.now();
      if (lead - clockLead > sessionLostMs / 2) answersSince = undefined;
      clockLead = lead;
      answersSince ??= performance.now();
      let isMore = performance.now() - answersSince >= sessionLostMs / 2;
      while (isMore && !signal.aborted) {
        isMore = await inTransaction(pool, async (tx) => {
          const lost = await takeLostSessions(tx, sessionLostMs, BATCH);
          for (const row of lost) {
            const end = { reason: 'cut_off', duration_ms: durationOf(row), ...UNKNOWN };
            await recordEnd(tx, row, end, now());
          }
          return lost.length === BATCH;
        });
      }
    } catch (error) {
      answersSince = undefined;
      throw error;
    }
  };
}

/** Until the session was last seen. */
function durationOf({ opened_at, seen_at }: SessionRow): number {
  return Math.max(Number((microsOf(seen_at) - microsOf(opened_at)) / 1000n), 0);
}
