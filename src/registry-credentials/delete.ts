import type { Caller } from '../access/caller.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { deleteCredentialRow, lockCredential } from './queries.js';

/** Deletes a credential with its password. Sandboxes that run are not affected. */
export async function deleteCredential(ctx: Context, { orgId, actor }: Caller, id: string): Promise<void> {
  await inTransaction(ctx.pool, async (tx) => {
    const row = await lockCredential(tx, orgId, id);
    if (!row) throw new ApiError('sandbox_not_found');
    const { pattern, username, description } = row;
    await deleteCredentialRow(tx, orgId, id);
    await recordEvent(tx, {
      orgId,
      type: 'registry_credential_deleted',
      actor,
      resourceId: id,
      at: ctx.now(),
      payload: { credential_id: id, pattern, username, description },
    });
  });
}
