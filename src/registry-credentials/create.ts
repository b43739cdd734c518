import type { Caller } from '../access/caller.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { violatedConstraint } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { newId } from '../lib/uuid.js';
import { sealPassword } from './password.js';
import { checkPattern } from './pattern.js';
import { presentCredential } from './present.js';
import { countCredentials, insertCredential } from './queries.js';
import type { CreateRegistryCredentialRequest, RegistryCredentialResponse } from './schema.js';

/** A start reads those that match its image, so their number is bounded for people who read the list. */
const MAX_CREDENTIALS = 100;

/** Stores a credential. Starts from now on use it. */
export async function createCredential(
  ctx: Context,
  { orgId, actor }: Caller,
  request: CreateRegistryCredentialRequest,
): Promise<RegistryCredentialResponse> {
  const { username, password, description = null } = request;
  const pattern = checkPattern(request.pattern);
  const id = newId();
  const at = ctx.now();
  const row = {
    org_id: orgId,
    id,
    pattern,
    description,
    username,
    sealed: sealPassword(ctx.keyring(), { org_id: orgId, id }, password),
    created_at: at,
    created_by: actor,
    updated_at: at,
  };
  try {
    await inTransaction(ctx.pool, async (tx) => {
      const used = await countCredentials(tx, orgId);
      if (used >= MAX_CREDENTIALS) {
        throw new ApiError(
          'quota_exceeded',
          `an organization has at most ${MAX_CREDENTIALS} registry credentials: delete one first`,
          { limit: MAX_CREDENTIALS, used },
        );
      }
      await insertCredential(tx, row);
      await recordEvent(tx, {
        orgId,
        type: 'registry_credential_created',
        actor,
        resourceId: id,
        at,
        payload: { credential_id: id, pattern, username, description },
      });
    });
  } catch (error) {
    if (violatedConstraint(error) !== 'registry_credentials_pattern') throw error;
    throw new ApiError(
      'name_already_exists',
      `the organization has a registry credential for ${pattern}: change that one, or use a longer pattern`,
      { pattern },
    );
  }
  return presentCredential(row);
}
