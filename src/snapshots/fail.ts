import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import { announceTemplate } from '../db/changes.js';
import type { EventSql } from '../db/transaction.js';
import type { Instant } from '../lib/instant.js';
import { recordForkFailed } from './forks/end.js';
import { isFork } from './forks/queries.js';
import { updateSnapshot, type SnapshotRow } from './queries.js';

/** Ends an operation without a snapshot. The transaction has locked the row. The sweep removes what the engine has. */
export async function failSnapshot(
  tx: EventSql,
  row: SnapshotRow,
  { code, message }: { code: string; message: string },
  actor: EventActor,
  at: Instant,
): Promise<void> {
  const { org_id: orgId, id, name, sandbox_id, sandbox_name, template_id } = row;
  const change = { status: 'failed', error_code: code, error_message: message, completed_at: at } as const;
  await updateSnapshot(tx, { org_id: orgId, id }, change, at);
  if (isFork(row)) return recordForkFailed(tx, row, { code, message }, at);
  await recordEvent(tx, {
    orgId,
    type: 'snapshot_failed',
    actor,
    resourceId: id,
    at,
    payload: { snapshot_id: id, name, sandbox_id, sandbox_name, reason: code, message },
  });
  if (template_id !== null) await announceTemplate(tx, template_id);
}
