import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { violatedConstraint } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import type { Writer } from '../idempotency/keyed.js';
import { inWrite } from '../idempotency/write.js';
import { presentVolume } from './present.js';
import { lockVolume, setActive } from './queries.js';
import type { VolumeResponse } from './schema.js';

export async function restoreVolume(ctx: Context, caller: Writer, id: string): Promise<VolumeResponse> {
  const { orgId, actor } = caller;
  let name: string | null = null;
  try {
    return await inWrite(ctx, caller, async (tx) => {
      const volume = await lockVolume(tx, orgId, id);
      const at = ctx.now();
      if (!volume || (volume.purge_at !== null && volume.purge_at <= at)) {
        throw new ApiError('sandbox_not_found');
      }
      if (volume.status === 'active') return presentVolume(volume);
      name = volume.name;
      const row = await setActive(tx, orgId, id, at);
      await recordEvent(tx, {
        orgId,
        type: 'volume_restored',
        actor,
        resourceId: id,
        at,
        payload: { volume_id: id, name },
      });
      return presentVolume(row);
    });
  } catch (error) {
    if (violatedConstraint(error) !== 'volumes_name') throw error;
    throw new ApiError(
      'volume_already_exists',
      `another volume has the name "${name}" now: delete that volume first`,
      { name },
    );
  }
}
