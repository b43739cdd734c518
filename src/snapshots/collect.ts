import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import type { EngineSnapshots } from '../engine/runtime.js';
import { Rotation } from '../fairness/rotation.js';
import type { Term } from '../workers/lease.js';
import { setErased, type KeptSnapshot } from './work-queries.js';

/** Captures wait meanwhile, and the engine takes a tenth of a second for each. */
const AT_ONCE = 10;
/** A container of the operator may have the image. */
const RETRY_MS = 30_000;

type Held = Awaited<ReturnType<EngineSnapshots['list']>>[number];

/** Removes from the engine the snapshots that no caller finds and no sandbox needs. Organizations take turns. */
export class Collection {
  private readonly retryAt = new Map<string, number>();
  /** The organizations that have more to remove, from the one that was served the longest time ago. */
  private turns: readonly string[] = [];

  constructor(private readonly ctx: Context) {}

  /** `held`: what the engine had before `rows` were read. Returns whether some are left. */
  async pass(
    term: Term,
    snapshots: EngineSnapshots,
    held: ReadonlyMap<string, Held>,
    rows: readonly KeptSnapshot[],
  ): Promise<boolean> {
    const { ctx, retryAt } = this;
    const now = performance.now();
    for (const [id, at] of retryAt) if (at <= now) retryAt.delete(id);
    const known = new Set(rows.map(({ id }) => id));
    const over = rows.filter(({ is_over: isOver, is_needed: isNeeded }) => isOver && !isNeeded);
    await this.setErased(over.filter(({ id }) => !held.has(id)));
    const rowOf = new Map(over.map((row) => [row.id, row]));
    const removable = Array.from(held.values(), ({ orgId, snapshotId: id }) => ({
      id,
      orgId,
      row: rowOf.get(id),
    })).filter(({ id, row }) => (row !== undefined || !known.has(id)) && !retryAt.has(id));
    const turnOf = new Map(this.turns.map((orgId, turn) => [orgId, turn]));
    const waiting = new Rotation<(typeof removable)[number]>();
    for (const one of removable.toSorted(
      (a, b) => (turnOf.get(a.orgId) ?? -1) - (turnOf.get(b.orgId) ?? -1),
    )) {
      waiting.add(one.orgId, one);
    }
    for (let left = AT_ONCE; left > 0 && term.valid; left -= 1) {
      const next = waiting.take();
      if (!next) break;
      const { id, orgId, row } = next;
      if (!row) ctx.log.warn({ orgId, snapshotId: id }, 'removing a snapshot the store does not know');
      if (!(await this.remove(snapshots, id))) retryAt.set(id, performance.now() + RETRY_MS);
      else if (row) await this.setErased([row]);
    }
    this.turns = [...waiting.owners()];
    return waiting.size > 0;
  }

  private async setErased(rows: readonly KeptSnapshot[]): Promise<void> {
    if (rows.length === 0) return;
    await inTransaction(this.ctx.pool, async (tx) => setErased(tx, rows, this.ctx.now()));
  }

  private async remove(snapshots: EngineSnapshots, snapshotId: string): Promise<boolean> {
    try {
      return await snapshots.remove(snapshotId);
    } catch (error) {
      this.ctx.log.error(
        { err: error, snapshotId },
        'cannot remove the data of a snapshot; it will be tried again',
      );
      return false;
    }
  }
}
