import type { Context } from '../../context.js';
import type { ReconcileRow } from './queries.js';

/** Also the step in which the shown time grows: each step is a write. */
const STEP_MS = 60_000;

export interface UnansweredNotice {
  orgId: string;
  sandboxId: string;
  /** Null: the engine answers again. */
  words: string | null;
}

/** The sandboxes for which the engine has left a call without an answer for a minute, in words for their callers. */
export class UnansweredNotices {
  /** The words by sandbox. */
  private readonly shown = new Map<string, string>();

  constructor(private readonly ctx: Pick<Context, 'runtime' | 'log'>) {}

  /** The changes since the last call. It knows nothing of earlier processes: a start writes over their words. */
  changed(rows: readonly ReconcileRow[]): UnansweredNotice[] {
    const hanging = this.ctx.runtime.unanswered?.() ?? new Map<string, never>();
    return rows.flatMap(({ orgId, sandboxId, wanted: { status, removed } }): UnansweredNotice[] => {
      const { call, ms } = hanging.get(sandboxId) ?? { call: '', ms: 0 };
      const isShown = status === 'starting' || status === 'stopping';
      const steps = Math.floor(ms / STEP_MS);
      const before = this.shown.get(sandboxId);
      if (steps === 0 || !isShown || removed) {
        this.shown.delete(sandboxId);
        return before === undefined || !isShown ? [] : [{ orgId, sandboxId, words: null }];
      }
      const words = `the engine has not answered the ${call} for ${(steps * STEP_MS) / 1_000} s`;
      if (words === before) return [];
      this.shown.set(sandboxId, words);
      this.ctx.log.warn({ orgId, sandboxId, call, ms }, 'the engine does not answer for a sandbox');
      return [{ orgId, sandboxId, words }];
    });
  }
}
