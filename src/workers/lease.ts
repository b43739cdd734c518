import type { Context } from '../context.js';
import type { Sql } from '../db/pool.js';
import { hasEnded, makeHolderName } from './process-identity.js';
import { endLease, lockEpoch, readHolder, shortenLeases, takeLease, type WorkerIdentity } from './queries.js';

/** Another process may have the lease. The transaction wrote nothing. */
export class LeaseLostError extends Error {
  constructor() {
    super('the lease on the worker was lost');
  }
}

/** The share of the lease that its holder does not use: clocks drift, and calls take time. */
const MARGIN = 0.3;

/**
 * An unbroken time of this process as the holder of the lease. It does not resume after its end, because another holder
 * may have acted since.
 */
export class Term {
  private readonly controller = new AbortController();
  private until = { monotonic: 0, wall: 0 };
  private timer: NodeJS.Timeout | undefined;

  constructor(
    private readonly workerId: string,
    readonly epoch: number,
  ) {}

  get valid(): boolean {
    // The monotonic clock stops while the machine is suspended, and the wall clock may be set back.
    const inTime = performance.now() < this.until.monotonic && Date.now() < this.until.wall;
    if (!inTime) this.end();
    return !this.controller.signal.aborted;
  }

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  /** Throws LeaseLostError unless the lease is that of this term. The lock keeps it so until the transaction ends. */
  async assertHeld(tx: Sql): Promise<void> {
    if (!(await lockEpoch(tx, this.workerId, this.epoch))) throw new LeaseLostError();
  }

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
 * The exclusive right to act on an engine. It expires unless renewed, and is fenced in two ways. The holder stops by
 * its own clocks, counted from before the renewal was sent. Its writes need its epoch, a fencing token that the next
 * holder raises.
 */
export class WorkerLease {
  term: Term | undefined;
  private readonly holder = makeHolderName();

  constructor(private readonly ctx: Pick<Context, 'pool' | 'runtime' | 'settings' | 'peer'>) {}

  async renew(): Promise<boolean> {
    const { pool, runtime, settings } = this.ctx;
    const ttlMs = settings.workerLeaseMs;
    const lasts = ttlMs * (1 - MARGIN);
    const until = { monotonic: performance.now() + lasts, wall: Date.now() + lasts };
    await shortenLeases(pool, ttlMs);
    const ended = this.term?.valid ? null : await this.endedHolder();
    const epoch = await takeLease(pool, identityOf(this.ctx), { holder: this.holder, ttlMs, ended });
    if (this.term && (this.term.epoch !== epoch || !this.term.valid)) {
      this.term.end();
      this.term = undefined;
    }
    if (epoch === undefined) return false;
    this.term ??= new Term(runtime.engineId, epoch);
    this.term.extend(until);
    return true;
  }

  /** Ends the lease, so that the next holder need not wait. */
  async release(): Promise<void> {
    const { term } = this;
    this.term = undefined;
    term?.end();
    if (term) await endLease(this.ctx.pool, this.ctx.runtime.engineId, term.epoch);
  }

  /** The holder, when its process is known to have ended. */
  private async endedHolder(): Promise<string | null> {
    const holder = await readHolder(this.ctx.pool, this.ctx.runtime.engineId);
    return holder !== undefined && hasEnded(holder) ? holder : null;
  }
}

function identityOf({ runtime, peer }: Pick<Context, 'runtime' | 'peer'>): WorkerIdentity {
  const { engineId, name, machine, capabilities, capacity } = runtime;
  const { address, addressPlace } = peer;
  const identity = { id: engineId, runtime: name, name: machine, address, addressPlace };
  return { ...identity, capabilities: [...capabilities], ...capacity };
}
