import type { EventActor } from '../../audit/events/schema.js';
import type { Context } from '../../context.js';
import { inTransaction, type EventSql } from '../../db/transaction.js';
import type { Instant } from '../../lib/instant.js';
import { lockSandbox, type LockedSandbox } from '../queries.js';
import { requestStop, type StopReason } from './stop.js';

const BATCH = 100;

interface Stops {
  orgId: string;
  actor: EventActor;
  reason: StopReason;
  /** From then on the stops have no cause. The causes of a month end with it. */
  until: Instant;
  /** The ids of sandboxes that start or run, in order, after `after`. */
  list(this: void, after: string | null, limit: number): Promise<string[]>;
  /** Whether the cause still concerns the sandbox. The transaction has locked it. Default: it does. */
  concerns?(this: void, tx: EventSql, sandbox: LockedSandbox): Promise<boolean>;
}

/** Stops the listed sandboxes, each in a transaction. A sandbox may have changed since the list was read. */
export async function stopEach(ctx: Context, stops: Stops, signal: AbortSignal): Promise<void> {
  let after: string | null = null;
  do {
    const ids: string[] = await stops.list(after, BATCH);
    for (const id of ids) {
      if (signal.aborted || ctx.now() >= stops.until) return;
      await inTransaction(ctx.pool, (tx) => stopOne(ctx, tx, stops, id));
    }
    after = ids.length === BATCH ? ids.at(-1)! : null;
  } while (after !== null);
}

async function stopOne(
  ctx: Context,
  tx: EventSql,
  { orgId, actor, reason, until, concerns }: Stops,
  id: string,
): Promise<void> {
  const sandbox = await lockSandbox(tx, orgId, { id, orWarm: true });
  if (sandbox?.status !== 'starting' && sandbox?.status !== 'running') return;
  if (concerns && !(await concerns(tx, sandbox))) return;
  // The wait for the lock may have taken a while.
  const at = ctx.now();
  if (at < until) await requestStop(tx, sandbox, actor, reason, at);
}
