import { isDeepStrictEqual } from 'node:util';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { ApiError } from '../http/errors.js';
import type { Writer } from '../idempotency/keyed.js';
import { inWrite } from '../idempotency/write.js';
import { checkLabels } from '../lib/labels.js';
import { reserve } from '../quotas/reserve.js';
import { checkCap } from './check-cap.js';
import { checkNewCap, growStorage } from './engine-storage.js';
import { presentVolume } from './present.js';
import { lockVolume, sandboxesMounting, updateVolumeRow, type VolumeRow } from './queries.js';
import type { UpdateVolumeRequest, VolumeResponse } from './schema.js';

type Change = Pick<VolumeRow, 'capacity_gib' | 'labels'>;

export async function updateVolume(
  ctx: Context,
  caller: Writer,
  id: string,
  request: UpdateVolumeRequest,
): Promise<VolumeResponse> {
  const { orgId, actor } = caller;
  const badLabel = checkLabels(request.labels ?? {});
  if (badLabel) throw new ApiError('invalid_request', badLabel.message, { field: `labels.${badLabel.key}` });

  let grown: VolumeRow | undefined;
  const answer = await inWrite(ctx, caller, async (tx) => {
    const volume = await lockVolume(tx, orgId, id);
    if (!volume) throw new ApiError('sandbox_not_found');
    if (volume.kind === 'host' && request.capacity_gib !== undefined) {
      throw new ApiError('host_volume', 'the host volume cannot be capped');
    }
    if (volume.status === 'deleting') {
      throw new ApiError('invalid_state_transition', 'the volume is being deleted: restore it first', {
        status: volume.status,
        operation: 'update',
      });
    }
    const before: Change = { capacity_gib: volume.capacity_gib, labels: volume.labels };
    const after: Change = {
      capacity_gib: request.capacity_gib === undefined ? before.capacity_gib : request.capacity_gib,
      labels: request.labels ?? before.labels,
    };
    if (isDeepStrictEqual(before, after)) return presentVolume(volume);
    const cap = after.capacity_gib;
    if (cap !== before.capacity_gib) {
      await checkCap(tx, ctx.runtime, orgId, cap);
      const mounting = await sandboxesMounting(tx, orgId, id);
      await checkNewCap(ctx, orgId, volume, cap, mounting);
      if (cap !== null) refuseMounted(ctx, mounting);
    }
    if (cap !== null && cap !== before.capacity_gib) {
      await reserve(ctx, tx, caller, { cap: { gib: cap, before: before.capacity_gib ?? 0 } });
    }
    const at = ctx.now();
    const row = await updateVolumeRow(tx, orgId, id, after, at);
    await recordEvent(tx, {
      orgId,
      type: 'volume_updated',
      actor,
      resourceId: id,
      at,
      payload: { volume_id: id, name: volume.name, before, after },
    });
    grown = row;
    return presentVolume(row);
  });
  if (grown) await growStorage(ctx, orgId, grown);
  return answer;
}

/** The runtime could not hold existing mounts to the new cap. */
function refuseMounted(ctx: Context, sandboxes: readonly string[]): void {
  if (ctx.runtime.capabilities.has('volume_caps') || sandboxes.length === 0) return;
  throw new ApiError(
    'invalid_request',
    `the ${ctx.runtime.name} runtime cannot hold sandboxes to the cap of a volume, and ${sandboxes.join(', ')} mount it`,
    { field: 'capacity_gib', sandboxes },
  );
}
