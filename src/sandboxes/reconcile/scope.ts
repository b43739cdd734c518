import { addMillis, type Instant } from '../../lib/instant.js';
import type { Holding } from '../../engine/runtime.js';
import type { ReconcileRow, SandboxRef } from './queries.js';

/** Notifications can get lost, and a pass over all sandboxes costs some time for each. */
const ALL_EVERY_MS = 60_000;
/** Between the time of a change and its commit. A pass over all finds later ones. */
const COMMIT_LAG_MS = 10_000;

/** A running sandbox that ends at a time, or when it is idle, or whose command may end. */
export interface Timed {
  row: ReconcileRow;
  held: Holding | undefined;
}

/**
 * The sandboxes that a pass visits: all of them from time to time, and otherwise those that changed or are not settled.
 * So a change costs the same with any number of sandboxes.
 */
export class PassScope {
  readonly timed = new Map<string, Timed>();
  private all = true;
  private allSince = -Infinity;
  private changed = new Set<string>();
  /** The next pass visits them again. */
  private unsettled = new Set<string>();
  /** Those of the worker: notifications name no organization. */
  private readonly known = new Map<string, { orgId: string; changedAt: Instant }>();

  /** Undefined: any may have changed. */
  note(sandboxIds: readonly string[] | undefined): void {
    if (sandboxIds === undefined) this.all = true;
    else for (const id of sandboxIds) this.changed.add(id);
  }

  /** Undefined: the pass visits all. */
  next(listsSome: boolean): ReadonlySet<string> | undefined {
    const isDue = this.all || performance.now() - this.allSince >= ALL_EVERY_MS;
    const ids = new Set([...this.changed, ...this.unsettled]);
    this.changed = new Set();
    this.unsettled = new Set();
    if (listsSome && !isDue) return ids;
    this.all = false;
    this.allSince = performance.now();
    this.known.clear();
    this.timed.clear();
    return undefined;
  }

  /** The organizations of the ids of a pass, from its holdings and from earlier passes. */
  refsOf(ids: ReadonlySet<string>, holdings: ReadonlyMap<string, Holding>): SandboxRef[] {
    return [...ids].flatMap((sandboxId) => {
      const { orgId } = holdings.get(sandboxId) ?? this.known.get(sandboxId) ?? {};
      return orgId === undefined ? [] : [{ orgId, sandboxId }];
    });
  }

  changedSince(now: Instant): Instant {
    return addMillis(now, -COMMIT_LAG_MS);
  }

  /** The rows whose holdings the pass has read. The next one visits the others, unless they did not change. */
  split(ids: ReadonlySet<string>, rows: ReconcileRow[]): ReconcileRow[] {
    const visited = rows.filter(({ sandboxId }) => ids.has(sandboxId));
    for (const { orgId, sandboxId, changedAt } of rows) {
      if (ids.has(sandboxId) || this.known.get(sandboxId)?.changedAt === changedAt) continue;
      this.known.set(sandboxId, { orgId, changedAt });
      this.changed.add(sandboxId);
    }
    const found = new Set(visited.map(({ sandboxId }) => sandboxId));
    for (const id of ids) if (!found.has(id)) this.forget(id);
    return visited;
  }

  get hasChanges(): boolean {
    return this.changed.size > 0;
  }

  visited(row: ReconcileRow, held: Holding | undefined, isSettled: boolean): void {
    const { orgId, sandboxId, changedAt, wanted, maxDurationSecs, idleTimeoutSecs, commandRuns } = row;
    this.known.set(sandboxId, { orgId, changedAt });
    const isTimed = maxDurationSecs !== null || idleTimeoutSecs !== null || commandRuns;
    if (isTimed && wanted.status === 'running' && !wanted.removed) this.timed.set(sandboxId, { row, held });
    else this.timed.delete(sandboxId);
    if (!isSettled) this.unsettled.add(sandboxId);
  }

  keepUnsettled(sandboxId: string): void {
    this.unsettled.add(sandboxId);
  }

  private forget(sandboxId: string): void {
    this.known.delete(sandboxId);
    this.timed.delete(sandboxId);
  }
}
