import { PLACEMENT } from '../../audit/events/actor.js';
import { recordEvents } from '../../audit/events/record.js';
import type { Context } from '../../context.js';
import { inTransaction } from '../../db/transaction.js';
import { microsOf } from '../../lib/instant.js';
import { markWaitNoted } from '../../runs/queries.js';
import { countWaiting, isShortOfRoom, lockLongWaits } from './wait-queries.js';

const BATCH = 200;
/** The pause between two log lines while starts wait. */
const REPEAT_LOG_MS = 60_000;

/** Writes one audit event for each long wait. Any process may call it: a mark on the run prevents a second event. */
export async function noteLongWaits(ctx: Context, signal: AbortSignal): Promise<void> {
  let found: number;
  do {
    found = await inTransaction(ctx.pool, async (tx) => {
      const at = ctx.now();
      const beforeMillis = Number(microsOf(at) / 1000n) - ctx.settings.waitNoticeMs;
      const waits = await lockLongWaits(tx, ctx.runtime.name, beforeMillis, BATCH);
      if (waits.length === 0) return 0;
      const noted = await markWaitNoted(tx, waits);
      await recordEvents(
        tx,
        waits
          .filter(({ run_id }) => noted.has(run_id))
          .map(({ org_id, sandbox_id, name, run_id, has_worker, vcpus, memory_mib, disk_mib }) => ({
            orgId: org_id,
            type: 'sandbox_start_waiting' as const,
            actor: PLACEMENT,
            resourceId: sandbox_id,
            at,
            payload: {
              sandbox_id,
              name,
              run_id,
              vcpus,
              memory_mib,
              disk_mib,
              ...({ previous_status: 'starting', status: 'starting' } as const),
              reason: has_worker ? 'insufficient_capacity' : 'no_worker',
            },
          })),
      );
      return waits.length;
    });
  } while (found > 0 && !signal.aborted);
}

/** Makes the job that logs waiting starts, once a minute, and the end of the last wait. */
export function makeWaitLog(): (ctx: Context) => Promise<void> {
  let loggedAt: number | undefined;
  return async function logWaiting({ pool, runtime, log }) {
    if (!(await isShortOfRoom(pool, runtime.name))) {
      if (loggedAt !== undefined) log.info('no start waits for room any more');
      loggedAt = undefined;
      return;
    }
    if (loggedAt !== undefined && performance.now() - loggedAt < REPEAT_LOG_MS) return;
    loggedAt = performance.now();
    const waiting = (await countWaiting(pool)).filter((each) => each.runtime === runtime.name);
    const total = (column: 'runs' | 'vcpus' | 'memory_mib') =>
      waiting.reduce((sum, each) => sum + each[column], 0);
    const fields = { starts: total('runs'), vcpus: total('vcpus'), memoryMib: total('memory_mib') };
    log.warn(fields, 'starts wait for room on a worker; see "sandkeep worker list"');
  };
}
