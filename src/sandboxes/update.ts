import type { Context } from '../context.js';
import { announceChange } from '../db/changes.js';
import { violatedConstraint } from '../db/pool.js';
import { recordEvent } from '../events/record.js';
import type { Caller } from '../http/auth.js';
import { ApiError } from '../http/errors.js';
import { inWrite } from '../idempotency/write.js';
import { isSlug, NAME_RULE, SANDBOX_NAME, SLUG_RULE } from './names.js';
import { presentSandbox } from './present.js';
import { lockSandbox, updateSandbox, type SandboxKey } from './queries.js';
import { refuseTaken } from './refuse.js';
import type { SandboxResponse, UpdateSandboxRequest } from './schema.js';

/** Renames a sandbox, in whatever status. What is left out or null stays. */
export async function update(
  ctx: Context,
  caller: Caller,
  key: SandboxKey,
  request: UpdateSandboxRequest,
): Promise<SandboxResponse> {
  const { orgId, actor } = caller;
  if (request.name != null && !SANDBOX_NAME.test(request.name)) {
    throw new ApiError('invalid_request', NAME_RULE, { field: 'name' });
  }
  if (request.slug != null && !isSlug(request.slug)) {
    throw new ApiError('invalid_request', SLUG_RULE, { field: 'slug' });
  }
  try {
    return await inWrite(ctx, caller, async (tx) => {
      const sandbox = await lockSandbox(tx, orgId, key);
      if (!sandbox) throw new ApiError('sandbox_not_found');
      const { id } = sandbox;
      const before = { name: sandbox.name, slug: sandbox.slug };
      const after = { name: request.name ?? before.name, slug: request.slug ?? before.slug };
      if (after.name === before.name && after.slug === before.slug) return presentSandbox(sandbox);
      const at = ctx.now();
      const row = await updateSandbox(tx, orgId, id, after, at);
      await recordEvent(tx, {
        orgId,
        type: 'sandbox_renamed',
        actor,
        resourceId: id,
        at,
        payload: { sandbox_id: id, before, after },
      });
      await announceChange(tx, id);
      return presentSandbox(row);
    });
  } catch (error) {
    refuseTaken(violatedConstraint(error), request);
    throw error;
  }
}
