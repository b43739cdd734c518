import type { Context } from '../context.js';
import type { Sql } from '../db/pool.js';
import type { Runtime } from '../runtimes/runtime.js';
import { hasEnded, thisHolder } from './holder.js';
import { endLease, lockEpoch, readHolder, takeLease, type WorkerIdentity } from './queries.js';

/** The lease was lost while something was under way that only its holder may do. Nothing was written. */
export class LeaseLostError extends Error {
  constructor() {
    super('the lease on the worker was lost');
  }
}

/** How long before the lease runs out the holder stops by itself, as a share of it: clocks drift, and calls take time. */
const MARGIN = 0.3;

/**
 * The right to act on an engine, which one process at a time has. It runs out unless renewed, so a process that is cut
 * off from the database loses it; and it is fenced:
 * - `valid` is judged by this process's own clocks from before the renewal was sent, so the holder has stopped touching
 *   the engine when the next one begins;
 * - what the holder writes is bound to the epoch (`assertHeld`), which a successor has raised.
 */
export class WorkerLease {
  private readonly holder = thisHolder();
  private epoch: number | undefined;
  private until = { monotonic: 0, wall: 0 };

  constructor(
    private readonly ctx: Pick<Context, 'pool' | 'runtime'>,
    /** How long it lasts after each renewal, in milliseconds. */
    readonly ttlMs: number,
  ) {}

  /** May this process touch the engine now? */
  get valid(): boolean {
    // The monotonic clock stands still while the machine is suspended, the other may be set back: both must agree.
    return this.epoch !== undefined && performance.now() < this.until.monotonic && Date.now() < this.until.wall;
  }

  /** Takes or renews it. True when it has changed hands: the engine has to be looked at anew. */
  async renew(): Promise<{ held: boolean; taken: boolean }> {
    const { pool, runtime } = this.ctx;
    const lasts = this.ttlMs * (1 - MARGIN);
    const until = { monotonic: performance.now() + lasts, wall: Date.now() + lasts };
    const epoch = await takeLease(pool, identityOf(runtime), {
      holder: this.holder,
      ttlMs: this.ttlMs,
      ended: await this.endedHolder(),
    });
    const taken = epoch !== undefined && epoch !== this.epoch;
    this.epoch = epoch;
    this.until = until;
    return { held: epoch !== undefined, taken };
  }

  /** Throws LeaseLostError unless the lease is held; it stays so until the transaction ends. */
  async assertHeld(tx: Sql): Promise<void> {
    const held =
      this.epoch !== undefined && (await lockEpoch(tx, this.ctx.runtime.engineId, this.epoch));
    if (!held) throw new LeaseLostError();
  }

  /** Gives it back, so that a successor need not wait. */
  async release(): Promise<void> {
    const { epoch } = this;
    this.epoch = undefined;
    if (epoch !== undefined) await endLease(this.ctx.pool, this.ctx.runtime.engineId, epoch);
  }

  private async endedHolder(): Promise<string | null> {
    if (this.valid) return null;
    const holder = await readHolder(this.ctx.pool, this.ctx.runtime.engineId);
    return holder !== undefined && hasEnded(holder) ? holder : null;
  }
}

function identityOf({ engineId, name, machine, capabilities, capacity }: Runtime): WorkerIdentity {
  return { id: engineId, runtime: name, name: machine, capabilities: [...capabilities], ...capacity };
}
