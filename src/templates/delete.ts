import { readerOf } from '../access/reader.js';
import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Context } from '../context.js';
import { announceTemplate } from '../db/changes.js';
import type { EventSql } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import type { Writer } from '../idempotency/keyed.js';
import { inWrite } from '../idempotency/write.js';
import type { Instant } from '../lib/instant.js';
import { endBuild } from './end.js';
import { deleteLayersOf } from './layer-queries.js';
import { findTemplate, updateTemplate, type TemplateRow } from './queries.js';
import { TRANSITIONS } from './state.js';

/** Cancels a build, or deletes a template. Sandboxes that were made from it keep their disks. */
export async function deleteTemplate(ctx: Context, caller: Writer, id: string): Promise<{ message: string }> {
  return inWrite(ctx, caller, async (tx) => {
    const row = await findTemplate(tx, readerOf(caller), id, 'for update of t');
    if (!row) throw new ApiError('template_not_found');
    const { org_id: orgId, name, tag } = row;
    const { actor } = caller;
    const at = ctx.now();
    if (TRANSITIONS[row.status].delete === 'cancelled') {
      await endBuild(tx, row, { code: 'cancelled', message: 'the build was cancelled' }, actor, at);
      return { message: `the build of "${name}:${tag}" is cancelled` };
    }
    await deleteLayersOf(tx, { orgId, templateId: id });
    await recordDeleted(tx, row, actor, at);
    return { message: `the template "${name}:${tag}" is deleted` };
  });
}

/** No caller finds the template any more. The transaction has locked the row. */
export async function recordDeleted(
  tx: EventSql,
  { org_id: orgId, id, name, tag }: TemplateRow,
  actor: EventActor,
  at: Instant,
): Promise<void> {
  await updateTemplate(tx, { org_id: orgId, id }, { removed_at: at }, at);
  await recordEvent(tx, {
    orgId,
    type: 'template_deleted',
    actor,
    resourceId: id,
    at,
    payload: { template_id: id, name, tag },
  });
  await announceTemplate(tx, id);
}
