import { recordEvent } from '../../audit/events/record.js';
import type { EventActor } from '../../audit/events/schema.js';
import type { Context } from '../../context.js';
import { announceChange } from '../../db/changes.js';
import type { EventTarget } from '../../db/write-batch.js';
import { ApiError } from '../../http/errors.js';
import type { Writer } from '../../idempotency/keyed.js';
import { inWrite } from '../../idempotency/write.js';
import type { Instant } from '../../lib/instant.js';
import { closeRunsOf } from '../../runs/queries.js';
import { deleteSecrets } from '../../secrets/queries.js';
import {
  deleteSandboxRelations,
  lockSandbox,
  updateSandboxRow,
  type LockedSandbox,
  type SandboxKey,
} from '../queries.js';

/**
 * Deletes a sandbox in any status. Readers no longer find it and its name is free. The reconciler ends its run. Its
 * usage and events stay.
 */
export async function destroySandbox(
  ctx: Context,
  caller: Writer,
  key: SandboxKey,
): Promise<{ message: string }> {
  const { orgId, actor } = caller;
  return inWrite(ctx, caller, async (tx, batch) => {
    const sandbox = await lockSandbox(tx, orgId, key);
    if (!sandbox) throw new ApiError('sandbox_not_found');
    await removeSandbox(batch, sandbox, 'requested', actor, ctx.now());
    return { message: `the sandbox "${sandbox.name}" is deleted` };
  });
}

/**
 * `replaced`: a create took the name of a sandbox that had failed before it ever ran. `pool`: no create had taken it
 * from its pool. `fork_failed`: its disk could not be captured.
 */
type RemovalReason = 'requested' | 'replaced' | 'ephemeral_ended' | 'pool' | 'fork_failed';

export async function removeSandbox(
  target: EventTarget,
  { org_id: orgId, id, name, slug, status, run_id, run_spec }: LockedSandbox,
  reason: RemovalReason,
  actor: EventActor,
  at: Instant,
): Promise<void> {
  await recordEvent(target, {
    orgId,
    type: reason === 'requested' || reason === 'replaced' ? 'sandbox_destroyed' : 'sandbox_removed',
    actor,
    resourceId: id,
    at,
    payload: {
      sandbox_id: id,
      name,
      slug,
      run_id,
      previous_status: status,
      status: null,
      reason,
    },
  });
  await deleteSandboxRelations(target, orgId, id);
  await deleteSecrets(target, orgId, id, null);
  // No reconciler closes the runs of an imported sandbox.
  if (!run_spec) await closeRunsOf(target, orgId, id, at, 'sandbox_destroyed');
  await updateSandboxRow(
    target,
    orgId,
    id,
    { removed_at: at, ...(run_spec ? {} : { destroyed_at: at }) },
    at,
  );
  await announceChange(target, id);
}
