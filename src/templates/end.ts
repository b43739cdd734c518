import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import { announceTemplate } from '../db/changes.js';
import type { EventSql } from '../db/transaction.js';
import type { Instant } from '../lib/instant.js';
import { deleteContext } from './context/queries.js';
import { updateTemplate, type TemplateRow } from './queries.js';

export interface BuildFailure {
  code: string;
  message: string;
  line?: number | null;
}

export const TIMED_OUT: BuildFailure = {
  code: 'timed_out',
  message: 'the build did not end in time: give it more by timeout_secs',
};

/** Ends a build without a template. The transaction has locked the row. The worker removes its sandbox. */
export async function endBuild(
  tx: EventSql,
  { org_id: orgId, id, name, tag }: TemplateRow,
  { code, message, line = null }: BuildFailure,
  actor: EventActor,
  at: Instant,
): Promise<void> {
  const status = code === 'cancelled' ? 'cancelled' : 'failed';
  const error = { error_code: code, error_message: message, error_line: line };
  await updateTemplate(tx, { org_id: orgId, id }, { status, ...error, completed_at: at }, at);
  await deleteContext(tx, { orgId, templateId: id });
  await recordEvent(tx, {
    orgId,
    type: 'template_build_failed',
    actor,
    resourceId: id,
    at,
    payload: { template_id: id, name, tag, reason: code, message, line },
  });
  await announceTemplate(tx, id);
}
