import { RECONCILER } from '../audit/events/actor.js';
import type { WorkerContext } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { addMillis } from '../lib/instant.js';
import { endBuild, TIMED_OUT } from './end.js';
import { lockTemplate } from './queries.js';
import { overdueBuilds } from './work-queries.js';

/** The process with the engine ends them earlier. */
const MARGIN_MS = 60_000;
/** The longest wait of a build for a process that serves its engine. */
const LONGEST_AWAY_MS = 60 * 60_000;
const BATCH = 100;

const AWAY = {
  code: 'engine_failed',
  message: `no process has served the engine of the build for ${LONGEST_AWAY_MS / 60_000} minutes: repeat the request, or ask the operator`,
};

/** Ends builds of every engine that no process ends any more. Their sandboxes go when a process serves the engine. */
export async function failOverdueBuilds(ctx: WorkerContext): Promise<void> {
  const at = ctx.now();
  const limits = { endedBefore: addMillis(at, -MARGIN_MS), awaySince: addMillis(at, -LONGEST_AWAY_MS) };
  for (const ref of await overdueBuilds(ctx.pool, limits, BATCH)) {
    await inTransaction(ctx.pool, async (tx) => {
      const row = await lockTemplate(tx, ref);
      if (!row || row.status !== ref.status) return;
      await endBuild(tx, row, row.status === 'queued' ? AWAY : TIMED_OUT, RECONCILER, ctx.now());
    });
  }
}
