import type { Context } from '../context.js';
import { ApiError } from '../http/errors.js';
import { presentSandbox } from './present.js';
import { getSandbox } from './queries.js';
import type { SandboxResponse } from './schema.js';

/** A notification can be lost while the database connection is down: look at least this often, in milliseconds. */
const LOOK_EVERY_MS = 1_000;

export interface WaitQuery {
  wait_for?: 'running';
  wait_timeout?: number;
}

/**
 * Holds requests until a sandbox has left `starting`. Bounded, because each held request costs a connection and memory.
 */
export class Waiters {
  private held = 0;

  constructor(private readonly ctx: Context) {}

  /** Checks the parameters, and that one more may wait, before anything is changed for the request. */
  admit({ wait_for, wait_timeout }: WaitQuery): void {
    if (wait_timeout !== undefined && wait_for === undefined) {
      throw new ApiError('invalid_request', 'wait_timeout is valid only with wait_for', {
        parameter: 'wait_timeout',
      });
    }
    if (wait_for !== undefined && this.held >= this.ctx.settings.maxWaiters) {
      throw new ApiError(
        'rate_limited',
        'too many requests are waiting for sandboxes: poll, or try again',
        null,
        {
          headers: { 'retry-after': '1' },
        },
      );
    }
  }

  /**
   * Waits until the sandbox no longer is `starting`, the budget (seconds) is used up, the client has left or the service
   * stops. Returns it as it is then: the client decides by its status.
   */
  async wait(
    sandbox: SandboxResponse,
    { wait_for, wait_timeout }: WaitQuery,
    gone: AbortSignal,
  ): Promise<SandboxResponse> {
    if (wait_for === undefined) return sandbox;
    const { ctx } = this;
    const budget = Math.min((wait_timeout ?? Infinity) * 1000, ctx.settings.waitBudgetMs);
    const ends = AbortSignal.any([gone, ctx.stopping, AbortSignal.timeout(budget)]);
    let current = sandbox;
    let changed: () => void = () => undefined;
    let unseen = false;
    const unsubscribe = ctx.changes.subscribe(sandbox.id, () => {
      unseen = true;
      changed();
    });
    this.held += 1;
    try {
      for (;;) {
        unseen = false;
        const row = await getSandbox(ctx.pool, sandbox.org_id, { id: sandbox.id });
        if (!row) throw new ApiError('sandbox_not_found', 'the sandbox was deleted while it was starting');
        current = presentSandbox(row);
        if (current.status !== 'starting' || ends.aborted) return current;
        if (unseen) continue;
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, LOOK_EVERY_MS);
          changed = () => {
            clearTimeout(timer);
            ends.removeEventListener('abort', changed);
            resolve();
          };
          ends.addEventListener('abort', changed, { once: true });
        });
      }
    } finally {
      this.held -= 1;
      unsubscribe();
    }
  }
}
