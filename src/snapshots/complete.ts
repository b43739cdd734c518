import { RECONCILER } from '../audit/events/actor.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { announceTemplate } from '../db/changes.js';
import type { EventSql } from '../db/transaction.js';
import { CaptureRefusedError, type Captured } from '../engine/runtime.js';
import { addMillis, type Instant } from '../lib/instant.js';
import { getLimits, lockQuotas, sumSnapshots } from '../quotas/queries.js';
import { lockSandbox } from '../sandboxes/queries.js';
import { insertReading } from '../volumes/accrual-queries.js';
import { VALID_INTERVALS } from '../volumes/sample.js';
import { scheduleDeletion } from './delete.js';
import { failSnapshot } from './fail.js';
import { NO_COPIES, recordForked } from './forks/end.js';
import { copyIds, isFork, type ForkRow } from './forks/queries.js';
import { digestOf, manifestOf } from './manifest.js';
import { overQuota } from './over-quota.js';
import { updateSnapshot, type CaptureRow, type SnapshotRow } from './queries.js';
import { TRANSITIONS } from './state.js';
import { lockForCompletion, sharedBytesOf } from './work-queries.js';

const GIB = 1024 ** 3;

/** Records a complete capture. Its usage begins now, and that of a snapshot that it replaces ends. */
export async function completeSnapshot(
  ctx: Context,
  tx: EventSql,
  begun: CaptureRow,
  { bytes, contentDigest }: Captured,
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
  const limit = (await getLimits(tx, orgId))?.max_snapshot_gib ?? null;
  const used = limit === null ? 0 : (await sumSnapshots(tx, orgId)).bytes;
  if (limit !== null && used + bytes > limit * GIB) throw overQuota(limit, used, bytes);
  const at = ctx.now();
  if (isFork(row)) return completeFork(ctx, tx, row, { bytes, contentDigest }, at);
  if (replaced) await scheduleDeletion(tx, replaced, row.actor, at, ctx.settings.volumePurgeAfterMs);
  const made = await madeOf(tx, row, { bytes, contentDigest }, at);
  await updateSnapshot(tx, row, { status: 'ready', ...made }, at);
  await readSize(ctx, tx, { ...row, ...made }, at);
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
      size_bytes: bytes,
      digest: made.digest,
      replaced_snapshot_id: replaced?.id ?? null,
    },
  });
}

async function madeOf(tx: EventSql, row: SnapshotRow, { bytes, contentDigest }: Captured, at: Instant) {
  const content = { size_bytes: bytes, content_digest: contentDigest };
  const digest = digestOf(manifestOf({ ...row, ...content }));
  const shared_bytes = Math.min(await sharedBytesOf(tx, row), bytes);
  return { ...content, shared_bytes, digest, completed_at: at, sampled_at: at };
}

/** No caller finds the disk of copies. It is kept, charged and counted as a purged snapshot that sandboxes need. */
async function completeFork(
  ctx: Context,
  tx: EventSql,
  row: ForkRow,
  captured: Captured,
  at: Instant,
): Promise<void> {
  if ((await copyIds(tx, row.org_id, row.id)).length === 0) {
    return failSnapshot(tx, row, NO_COPIES, RECONCILER, at);
  }
  const made = await madeOf(tx, row, captured, at);
  await updateSnapshot(tx, row, { status: 'deleting', purge_at: at, removed_at: at, ...made }, at);
  await readSize(ctx, tx, { ...row, ...made }, at);
  await recordForked(tx, { ...row, ...made }, at);
}

/** Opens the next interval of usage. */
export async function readSize(
  ctx: Context,
  tx: EventSql,
  {
    org_id: orgId,
    id,
    size_bytes,
    shared_bytes,
  }: { org_id: string; id: string; size_bytes: number; shared_bytes: number },
  at: Instant,
): Promise<void> {
  const until = addMillis(at, VALID_INTERVALS * ctx.settings.volumeSampleMs);
  await insertReading(tx, orgId, id, { at, until, kib: Math.ceil((size_bytes - shared_bytes) / 1024) });
}
