import { RECONCILER } from '../audit/events/actor.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { announceTemplate } from '../db/changes.js';
import type { EventSql } from '../db/transaction.js';
import { CaptureRefusedError, type Captured } from '../engine/runtime.js';
import type { Instant } from '../lib/instant.js';
import { lockQuotas } from '../quotas/queries.js';
import { lockSandbox } from '../sandboxes/queries.js';
import { completeCopies, type CopiedSizes } from '../volumes/copies.js';
import { scheduleDeletion } from './delete.js';
import { failSnapshot } from './fail.js';
import { NO_COPIES, recordForked } from './forks/end.js';
import { copyIds, isFork, type ForkRow } from './forks/queries.js';
import type { CaptureRow } from './queries.js';
import { recordReady } from './record-ready.js';
import { TRANSITIONS } from './state.js';
import { lockForCompletion } from './work-queries.js';

/** Records a complete capture. Its usage begins now, and that of a snapshot that it replaces ends. */
export async function completeSnapshot(
  ctx: Context,
  tx: EventSql,
  begun: CaptureRow,
  captured: Captured,
  volumes: CopiedSizes,
): Promise<void> {
  const { org_id: orgId, id, sandbox_id, sandbox_name } = begun;
  // While the engine removed the sandbox, it may have captured a part of its disk.
  if (!(await lockSandbox(tx, orgId, { id: sandbox_id, orWarm: true }))) {
    throw new CaptureRefusedError('sandbox_changed', 'the sandbox was deleted during its capture');
  }
  // Before the quotas: a create of a sandbox shares the replaced one, and then waits for them.
  const { row, replaced } = await lockForCompletion(tx, begun);
  // It may be cancelled: the collection removes what the engine has of it.
  if (!row || TRANSITIONS[row.status].complete !== 'ready') return;
  await lockQuotas(tx, orgId, 'exclusive');
  const at = ctx.now();
  if (isFork(row)) return completeFork(ctx, tx, row, captured, volumes, at);
  // It has the name.
  if (replaced) await scheduleDeletion(tx, replaced, row.actor, at, ctx.settings.volumePurgeAfterMs);
  const ready = await recordReady(ctx, tx, row, captured, at);
  if (row.template_id !== null) await announceTemplate(tx, row.template_id);
  await recordEvent(tx, {
    orgId,
    type: 'snapshot_created',
    actor: RECONCILER,
    resourceId: id,
    at,
    payload: {
      snapshot_id: id,
      name: row.name,
      sandbox_id,
      sandbox_name,
      image: row.image,
      size_bytes: ready.size_bytes,
      digest: ready.digest,
      replaced_snapshot_id: replaced?.id ?? null,
    },
  });
}

/** No caller finds the disk of copies. It is kept, charged and counted as a purged snapshot that sandboxes need. */
async function completeFork(
  ctx: Context,
  tx: EventSql,
  row: ForkRow,
  captured: Captured,
  volumes: CopiedSizes,
  at: Instant,
): Promise<void> {
  if ((await copyIds(tx, row.org_id, row.id)).length === 0) {
    return failSnapshot(tx, row, NO_COPIES, RECONCILER, at);
  }
  const ready = { status: 'deleting', purge_at: at, removed_at: at } as const;
  const { size_bytes } = await recordReady(ctx, tx, row, captured, at, ready);
  await completeCopies(ctx, tx, { orgId: row.org_id, forkId: row.id }, volumes, at);
  await recordForked(tx, { ...row, size_bytes }, at);
}
