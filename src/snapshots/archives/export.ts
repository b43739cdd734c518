import { recordEvent } from '../../audit/events/record.js';
import type { Caller } from '../../access/caller.js';
import { readerOf } from '../../access/reader.js';
import type { Context } from '../../context.js';
import { inTransaction } from '../../db/transaction.js';
import { ExportRefusedError, type EngineRoom } from '../../engine/snapshot-archives.js';
import { ApiError } from '../../http/errors.js';
import type { Step } from '../../registry/step.js';
import { findSnapshot, isComplete, type CompleteSnapshot, type SnapshotKey } from '../queries.js';
import { layoutOf, type Layout } from './layout.js';
import { archivesOf } from './supported.js';

/** Throws `snapshot_not_found`. */
export async function findExported(
  { pool }: Pick<Context, 'pool'>,
  caller: Caller,
  key: SnapshotKey,
): Promise<CompleteSnapshot> {
  const row = await findSnapshot(pool, readerOf(caller), key);
  if (!row || !isComplete(row)) throw new ApiError('snapshot_not_found');
  return row;
}

/** The event is recorded before the first byte leaves. */
export async function exportSnapshot(
  ctx: Context,
  { orgId, actor }: Caller,
  row: CompleteSnapshot,
  { step, signal }: { step: Step; signal: AbortSignal },
): Promise<Layout> {
  const { id, name } = row;
  const room: EngineRoom = {
    check: (bytes) => ctx.disk.check('engine', bytes),
    take: (bytes) => ctx.disk.take('engine', bytes),
    giveBack: (bytes) => ctx.disk.giveBack('engine', bytes),
  };
  const archives = archivesOf(ctx.runtime);
  const image = await archives.open({ orgId, snapshotId: id }, { step, signal, room }).catch(explain);
  if (!image) {
    throw new ApiError(
      'snapshot_not_found',
      'the engine has no data of the snapshot any more: make it again',
    );
  }
  try {
    const layout = layoutOf(row, image);
    await inTransaction(ctx.pool, async (tx) =>
      recordEvent(tx, {
        orgId,
        type: 'snapshot_exported',
        actor,
        resourceId: id,
        at: ctx.now(),
        payload: { snapshot_id: id, name, image_digest: layout.digest, bytes: layout.bytes },
      }),
    );
    return layout;
  } catch (error) {
    await image.close?.();
    throw error;
  }
}

function explain(error: unknown): never {
  // Others wrote more since the latest measurement, or the operator keeps no reserve.
  if ((error as NodeJS.ErrnoException).code === 'ENOSPC')
    throw new ApiError(
      'storage_full',
      'the disk of the sandboxes is full: ask the operator to make room',
      null,
      {
        cause: error,
      },
    );
  if (!(error instanceof ExportRefusedError)) throw error;
  throw new ApiError('not_supported', `the snapshot cannot be exported: ${error.message}`, null, {
    cause: error,
  });
}
