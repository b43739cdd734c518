import { RECONCILER } from '../../audit/events/actor.js';
import { recordEvent } from '../../audit/events/record.js';
import { announceChanges } from '../../db/changes.js';
import type { EventSql } from '../../db/transaction.js';
import type { Instant } from '../../lib/instant.js';
import { removeSandbox } from '../../sandboxes/lifecycle/destroy.js';
import { lockSandbox } from '../../sandboxes/queries.js';
import { removeCopies } from '../../volumes/copy-queries.js';
import { copyIds, type ForkRow } from './queries.js';

/** Their deletion cancels the operation. */
export const NO_COPIES = {
  code: 'cancelled',
  message: 'all copies were deleted before their disk was captured',
};

const payloadOf = ({ id, sandbox_id, sandbox_name, fork_count }: ForkRow) => ({
  fork_id: id,
  sandbox_id,
  name: sandbox_name,
  count: fork_count,
});

/** The captured disk is recorded. Placement finds the runs of the copies from now on. */
export async function recordForked(
  tx: EventSql,
  row: ForkRow & { size_bytes: number },
  at: Instant,
): Promise<void> {
  await recordEvent(tx, {
    orgId: row.org_id,
    type: 'sandbox_forked',
    actor: RECONCILER,
    resourceId: row.sandbox_id,
    at,
    payload: { ...payloadOf(row), size_bytes: row.size_bytes },
  });
  await announceChanges(tx, await copyIds(tx, row.org_id, row.id));
}

/**
 * Removes the copies of an operation that has failed: they have no disk. The transaction has locked the operation, and
 * nothing locks a copy before its operation.
 */
export async function recordForkFailed(
  tx: EventSql,
  row: ForkRow,
  { code: reason, message }: { code: string; message: string },
  at: Instant,
): Promise<void> {
  const { org_id: orgId } = row;
  await recordEvent(tx, {
    orgId,
    type: 'sandbox_fork_failed',
    actor: RECONCILER,
    resourceId: row.sandbox_id,
    at,
    payload: { ...payloadOf(row), reason, message },
  });
  await removeCopies(tx, orgId, row.id, at);
  for (const id of await copyIds(tx, orgId, row.id)) {
    const copy = await lockSandbox(tx, orgId, { id });
    if (copy) await removeSandbox(tx, copy, 'fork_failed', RECONCILER, at);
  }
}
