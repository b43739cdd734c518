import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { ApiError } from '../http/errors.js';
import type { Writer } from '../idempotency/keyed.js';
import { inWrite } from '../idempotency/write.js';
import { addMillis, shortInstant, type Instant } from '../lib/instant.js';
import { endAccruals } from './accrual-queries.js';
import { lockVolume, sandboxesMounting, setDeleting } from './queries.js';

export async function deleteVolume(ctx: Context, caller: Writer, id: string): Promise<{ message: string }> {
  const { orgId, actor } = caller;
  return inWrite(ctx, caller, async (tx) => {
    const volume = await lockVolume(tx, orgId, id);
    if (!volume) throw new ApiError('sandbox_not_found');
    if (volume.kind === 'host') throw new ApiError('host_volume');
    if (volume.purge_at) return scheduled(volume.purge_at);

    const sandboxes = await sandboxesMounting(tx, orgId, id);
    if (sandboxes.length > 0) {
      throw new ApiError('volume_in_use', `the volume is mounted by ${sandboxes.join(', ')}`, { sandboxes });
    }
    const at = ctx.now();
    const purgeAt = addMillis(at, ctx.settings.volumePurgeAfterMs);
    await setDeleting(tx, orgId, id, at, purgeAt);
    await endAccruals(tx, orgId, id, at);
    await recordEvent(tx, {
      orgId,
      type: 'volume_deletion_scheduled',
      actor,
      resourceId: id,
      at,
      payload: { volume_id: id, name: volume.name, purge_at: shortInstant(purgeAt) },
    });
    return scheduled(purgeAt);
  });
}

function scheduled(purgeAt: Instant): { message: string } {
  return { message: `the volume is scheduled for deletion; its data goes at ${shortInstant(purgeAt)}` };
}
