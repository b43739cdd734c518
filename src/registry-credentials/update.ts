import type { Caller } from '../access/caller.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { sealPassword } from './password.js';
import { presentCredential } from './present.js';
import { lockCredential, updateCredentialRow, type CredentialRow } from './queries.js';
import type { RegistryCredentialResponse, UpdateRegistryCredentialRequest } from './schema.js';

/** Changes the given fields. Starts from now on use the new values. */
export async function updateCredential(
  ctx: Context,
  { orgId, actor }: Caller,
  id: string,
  { username, password, description }: UpdateRegistryCredentialRequest,
): Promise<RegistryCredentialResponse> {
  return inTransaction(ctx.pool, async (tx) => {
    const before = await lockCredential(tx, orgId, id);
    if (!before) throw new ApiError('sandbox_not_found');
    const at = ctx.now();
    const after: CredentialRow = {
      ...before,
      username: username ?? before.username,
      description: description === undefined ? before.description : description,
      sealed: password === undefined ? before.sealed : sealPassword(ctx.keyring(), before, password),
      updated_at: at,
    };
    await updateCredentialRow(tx, after);
    await recordEvent(tx, {
      orgId,
      type: 'registry_credential_updated',
      actor,
      resourceId: id,
      at,
      payload: {
        credential_id: id,
        pattern: before.pattern,
        before: auditedFields(before),
        after: auditedFields(after),
        password_changed: password !== undefined,
      },
    });
    return presentCredential(after);
  });
}

function auditedFields({ username, description }: CredentialRow) {
  return { username, description };
}
