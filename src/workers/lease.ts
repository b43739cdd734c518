import type { Context } from '../context.js';
import type { Sql } from '../db/pool.js';
import type { Runtime } from '../runtimes/runtime.js';
import { hasEnded, makeHolder } from './process-identity.js';
import { endLease, lockEpoch, readHolder, takeLease, type WorkerIdentity } from './queries.js';

/** The lease was lost while something was under way that only its holder may do. Nothing was written. */
export class LeaseLostError extends Error {
  constructor() {
    super('the lease on the worker was lost');
  }
}

/** How long before the lease runs out its holder stops by itself, as a share of it: clocks drift, and calls take time. */
const MARGIN = 0.3;

/**
 * The time in which this process acts on an engine without a break. Once over it stays over, also when the lease is got
 * back: in between another may have acted, and what was seen before does not hold any more.
 */
export class Term {
  private readonly controller = new AbortController();
  private until = { monotonic: 0, wall: 0 };
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly workerId: string,
    readonly epoch: number,
  ) {}

  /** May this process touch the engine now? */
  get valid(): boolean {
    // The monotonic clock stands still while the machine is suspended, the other may be set back: both must agree.
    const inTime = performance.now() < this.until.monotonic && Date.now() < this.until.wall;
    if (!inTime) this.end();
    return !this.controller.signal.aborted;
  }

  /** Aborts when the term ends. */
  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /** Throws LeaseLostError unless the lease is still that of this term; it stays so until the transaction ends. */
  async assertHeld(tx: Sql): Promise<void> {
    if (!(await lockEpoch(tx, this.workerId, this.epoch))) throw new LeaseLostError();
  }

  /** It lasts until then, on both clocks of this process. */
  extend(until: { monotonic: number; wall: number }): void {
    this.until = until;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.end(), Math.max(until.monotonic - performance.now(), 0)).unref();
  }

  end(): void {
    clearTimeout(this.timer);
    this.controller.abort();
  }
}

/**
 * The right to act on an engine, which one process at a time has. It runs out unless renewed, so a process that is cut
 * off from the database loses it; and it is fenced:
 * - a term is judged by this process's own clocks from before the renewal was sent, so the holder has stopped touching
 *   the engine when the next one begins;
 * - what the holder writes is bound to its epoch, which a successor raises.
 */
export class WorkerLease {
  /** The term under way; undefined while another process has the lease. */
  term: Term | undefined;
  private readonly holder = makeHolder();

  constructor(private readonly ctx: Pick<Context, 'pool' | 'runtime' | 'settings'>) {}

  /** Takes or renews the lease. True when this process has it. */
  async renew(): Promise<boolean> {
    const { pool, runtime, settings } = this.ctx;
    const ttlMs = settings.workerLeaseMs;
    const lasts = ttlMs * (1 - MARGIN);
    const until = { monotonic: performance.now() + lasts, wall: Date.now() + lasts };
    const ended = this.term?.valid ? null : await this.endedHolder();
    const epoch = await takeLease(pool, identityOf(runtime), { holder: this.holder, ttlMs, ended });
    if (this.term && (this.term.epoch !== epoch || !this.term.valid)) {
      this.term.end();
      this.term = undefined;
    }
    if (epoch === undefined) return false;
    this.term ??= new Term(runtime.engineId, epoch);
    this.term.extend(until);
    return true;
  }

  /** Gives it back, so that a successor need not wait. */
  async release(): Promise<void> {
    const { term } = this;
    this.term = undefined;
    term?.end();
    if (term) await endLease(this.ctx.pool, this.ctx.runtime.engineId, term.epoch);
  }

  /** The holder, if it can be told that it has ended. */
  private async endedHolder(): Promise<string | null> {
    const holder = await readHolder(this.ctx.pool, this.ctx.runtime.engineId);
    return holder !== undefined && hasEnded(holder) ? holder : null;
  }
}

function identityOf({ engineId, name, machine, capabilities, capacity }: Runtime): WorkerIdentity {
  return { id: engineId, runtime: name, name: machine, capabilities: [...capabilities], ...capacity };
}
