import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { violatedConstraint } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import type { Writer } from '../idempotency/keyed.js';
import { inWrite } from '../idempotency/write.js';
import { checkLabels } from '../lib/labels.js';
import { newId } from '../lib/uuid.js';
import { reserve } from '../quotas/reserve.js';
import { checkCap } from './check-cap.js';
import { presentVolume } from './present.js';
import { insertVolume } from './queries.js';
import { NAME, NAME_LENGTH, type CreateVolumeRequest, type VolumeResponse } from './schema.js';

export async function createVolume(
  ctx: Context,
  caller: Writer,
  { name, labels = {}, capacity_gib = null }: CreateVolumeRequest,
): Promise<VolumeResponse> {
  const { orgId, actor } = caller;
  if (!NAME.test(name) || name.length > NAME_LENGTH) {
    throw new ApiError(
      'invalid_request',
      `the name of a volume must be 1 to ${NAME_LENGTH} lower-case letters, digits and single hyphens, such as "team-data"`,
      { field: 'name' },
    );
  }
  const badLabel = checkLabels(labels);
  if (badLabel) throw new ApiError('invalid_request', badLabel.message, { field: `labels.${badLabel.key}` });

  const id = newId();
  const at = ctx.now();
  try {
    return await inWrite(ctx, caller, async (tx) => {
      await checkCap(tx, ctx.runtime, orgId, capacity_gib);
      if (capacity_gib !== null) await reserve(ctx, tx, caller, { cap: { gib: capacity_gib, before: 0 } });
      const row = await insertVolume(tx, {
        org_id: orgId,
        id,
        kind: 'managed',
        name,
        labels,
        capacity_gib,
        created_at: at,
      });
      await recordEvent(tx, {
        orgId,
        type: 'volume_created',
        actor,
        resourceId: id,
        at,
        payload: { volume_id: id, kind: 'managed', name, capacity_gib },
      });
      return presentVolume(row);
    });
  } catch (error) {
    if (violatedConstraint(error) !== 'volumes_name') throw error;
    throw new ApiError('volume_already_exists', `a volume with the name "${name}" already exists`, { name });
  }
}
