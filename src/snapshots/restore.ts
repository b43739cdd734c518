import { readerOf } from '../access/reader.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { violatedConstraint } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import type { Writer } from '../idempotency/keyed.js';
import { inWrite } from '../idempotency/write.js';
import { presentSnapshot } from './present.js';
import { findSnapshot, isComplete, updateSnapshot, type CompleteSnapshot } from './queries.js';
import type { SnapshotResponse } from './schema.js';
import { TRANSITIONS } from './state.js';

/** Makes a snapshot that is being deleted ready again. Its usage continues with the next reading, which is due now. */
export async function restoreSnapshot(ctx: Context, caller: Writer, id: string): Promise<SnapshotResponse> {
  const { orgId, actor } = caller;
  let name = '';
  try {
    return await inWrite(ctx, caller, async (tx) => {
      const row = await findSnapshot(tx, readerOf(caller), { id }, 'for update');
      const at = ctx.now();
      if (!row || !isComplete(row) || (row.purge_at !== null && row.purge_at <= at)) {
        throw new ApiError('snapshot_not_found');
      }
      if (TRANSITIONS[row.status].restore === 'same') return presentSnapshot(row);
      ({ name } = row);
      const restored = await updateSnapshot(
        tx,
        row,
        { status: 'ready', purge_at: null, sampled_at: null },
        at,
      );
      await recordEvent(tx, {
        orgId,
        type: 'snapshot_restored',
        actor,
        resourceId: id,
        at,
        payload: { snapshot_id: id, name },
      });
      return presentSnapshot(restored as CompleteSnapshot);
    });
  } catch (error) {
    if (violatedConstraint(error) !== 'snapshots_name') throw error;
    throw new ApiError(
      'snapshot_already_exists',
      `another snapshot has the name "${name}" now: delete that snapshot first`,
      { name },
    );
  }
}
