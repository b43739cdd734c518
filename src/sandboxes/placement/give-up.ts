import type { Context } from '../../context.js';
import { inTransaction } from '../../db/transaction.js';
import { addMillis } from '../../lib/instant.js';
import { recordObservations, type Observation, type RunChange } from '../reconcile/record.js';
import { lockUnwanted, type OneSandbox, type Unwanted } from './wait-queries.js';

const BATCH = 200;
/** A caller that waits to its end has an answer by then, and has said whether it still wants the run. */
const LATE_MS = 5_000;
/** The timer of a wait and the clock that stored its end differ. */
const CLOCK_SLACK_MS = 1_000;

/** Ends the starts without a place whose callers left, or were cut off, and have not come back in their time. */
export async function giveUpUnwanted(ctx: Context, signal: AbortSignal): Promise<void> {
  let ended: number;
  do ended = await giveUp(ctx, { late: LATE_MS, most: BATCH });
  while (ended === BATCH && !signal.aborted);
}

/** Ends the start of this sandbox, if its wait is over and it still has no place. */
export async function giveUpStart(ctx: Context, only: OneSandbox): Promise<void> {
  await giveUp(ctx, { late: -CLOCK_SLACK_MS, most: 1, only });
}

async function giveUp(
  ctx: Context,
  { late, ...choice }: { late: number; most: number; only?: OneSandbox },
): Promise<number> {
  const { count, changes } = await inTransaction(ctx.pool, async (tx) => {
    const unwanted = await lockUnwanted(tx, { before: addMillis(ctx.now(), -late), ...choice });
    const observed = await recordObservations(ctx, tx, unwanted.map(observationOf));
    return { count: unwanted.length, changes: observed };
  });
  for (const change of changes satisfies RunChange[])
    if (change.kind === 'ended') ctx.meters.runEnded(change.reason, change.seconds);
  return count;
}

function observationOf({ org_id, sandbox_id, run_id, words }: Unwanted): Observation {
  return {
    orgId: org_id,
    sandboxId: sandbox_id,
    runId: run_id,
    occurrence: 'start_failed',
    startedAt: null,
    stoppedAt: null,
    exit: null,
    reason: 'no_room_in_time',
    message: `no worker had room for it while its caller waited: ${words ?? 'no live worker can run it'}`,
  };
}
