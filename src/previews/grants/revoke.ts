import { recordEvent } from '../../audit/events/record.js';
import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import type { Writer } from '../../idempotency/keyed.js';
import { inWrite } from '../../idempotency/write.js';
import { getWorkerOf, type SandboxKey } from '../../sandboxes/queries.js';
import { getPreview, setRevoked } from './queries.js';

/**
 * Ends a preview of any caller. Every process then closes its open connections, by a notification of the database. A
 * repetition changes nothing.
 */
export async function revokePreview(
  ctx: Context,
  caller: Writer,
  key: SandboxKey,
  previewId: string,
): Promise<{ message: string }> {
  const { orgId, actor } = caller;
  return inWrite(ctx, caller, async (tx, batch) => {
    const sandbox = await getWorkerOf(tx, orgId, key);
    if (!sandbox) throw new ApiError('sandbox_not_found');
    const preview = await getPreview(tx, orgId, sandbox.id, previewId);
    if (!preview) throw new ApiError('preview_not_found');
    const at = ctx.now();
    const { port, label, is_public } = preview;
    if (await setRevoked(tx, orgId, previewId, at)) {
      await recordEvent(batch, {
        orgId,
        type: 'sandbox_preview_revoked',
        actor,
        resourceId: sandbox.id,
        at,
        payload: {
          preview_id: previewId,
          sandbox_id: sandbox.id,
          name: sandbox.name,
          port,
          label,
          public: is_public,
        },
      });
    }
    return { message: `the preview of port ${port} is revoked` };
  });
}
