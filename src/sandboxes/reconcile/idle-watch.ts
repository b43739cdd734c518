import type { Context } from '../../context.js';
import type { Term } from '../../workers/lease.js';
import { hasOpenCommand } from '../sessions/queries.js';
import { IdleClocks } from './idle-clocks.js';
import type { ReconcileRow } from './queries.js';
import type { Timed } from './scope.js';

/** Ends the runs that have been idle for their idle timeout. */
export class IdleWatch {
  private readonly clocks = new IdleClocks();
  private look: Promise<void> | undefined;

  constructor(
    private readonly ctx: Context,
    private readonly endRun: (term: Term, row: ReconcileRow) => Promise<void>,
  ) {}

  /** Begins a look, unless one is under way. Not awaited: a slow engine must not delay the pass. */
  begin(term: Term, running: readonly Timed[]): void {
    this.look ??= this.endIdle(term, running)
      .catch((error: unknown) => this.ctx.log.error({ err: error }, 'idle runs could not be ended'))
      .finally(() => (this.look = undefined));
  }

  async close(): Promise<void> {
    await this.look;
  }

  private async endIdle(term: Term, running: readonly Timed[]): Promise<void> {
    const due = this.clocks.due(
      running.flatMap(({ row, held }) =>
        row.wanted.runId !== null && row.idleTimeoutSecs !== null && held?.state === 'running'
          ? [{ row, runId: row.wanted.runId, timeoutSecs: row.idleTimeoutSecs }]
          : [],
      ),
      performance.now(),
    );
    if (due.length === 0) return;
    const activities = await this.ctx.runtime.activity(due.map(({ row }) => row.sandboxId));
    for (const { row, runId, timeoutSecs } of due) {
      const activity = activities.get(row.sandboxId);
      if (!activity) continue;
      const touchedAt = this.ctx.touches.at(row.sandboxId);
      const idleMs = this.clocks.observe(runId, activity, performance.now(), touchedAt);
      if (idleMs < timeoutSecs * 1_000) continue;
      if (await hasOpenCommand(this.ctx.pool, row.orgId, row.sandboxId))
        this.clocks.keepAwake(runId, performance.now());
      else await this.endRun(term, row);
    }
  }
}
