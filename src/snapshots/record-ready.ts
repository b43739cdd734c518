import type { Context } from '../context.js';
import type { EventSql } from '../db/transaction.js';
import type { Captured } from '../engine/runtime.js';
import { addMillis, type Instant } from '../lib/instant.js';
import { insertReading } from '../volumes/accrual-queries.js';
import { VALID_INTERVALS } from '../volumes/sample.js';
import { digestOf, manifestOf } from './manifest.js';
import { refuseOverQuota } from './over-quota.js';
import { updateSnapshot, type CompleteSnapshot, type SnapshotRow } from './queries.js';
import { sharedBytesOf } from './work-queries.js';

type Ready = { status: 'ready' } | { status: 'deleting'; purge_at: Instant; removed_at: Instant };

/** Records the content of a snapshot if the quota has room. The transaction has locked the row and the quotas. */
export async function recordReady(
  ctx: Context,
  tx: EventSql,
  row: SnapshotRow,
  { bytes, contentDigest, diskMib }: Captured,
  at: Instant,
  ready: Ready = { status: 'ready' },
): Promise<CompleteSnapshot> {
  const shared_bytes = Math.min(await sharedBytesOf(tx, row), bytes);
  await refuseOverQuota(tx, row.org_id, bytes - shared_bytes);
  const content = { size_bytes: bytes, content_digest: contentDigest, disk_mib: diskMib ?? null };
  const digest = digestOf(manifestOf({ ...row, ...content }));
  const made = { ...content, shared_bytes, digest, completed_at: at, sampled_at: at };
  const updated = await updateSnapshot(tx, row, { ...ready, ...made }, at);
  const complete: CompleteSnapshot = { ...updated, ...ready, ...made };
  await openInterval(ctx, tx, complete, at);
  return complete;
}

/** Opens the next interval of usage. */
export async function openInterval(
  ctx: Context,
  tx: EventSql,
  { org_id: orgId, id, size_bytes, shared_bytes }: CompleteSnapshot,
  at: Instant,
): Promise<void> {
  const until = addMillis(at, VALID_INTERVALS * ctx.settings.volumeSampleMs);
  await insertReading(tx, orgId, id, { at, until, kib: Math.ceil((size_bytes - shared_bytes) / 1024) });
}
