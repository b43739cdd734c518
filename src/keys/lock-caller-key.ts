import type { Access } from '../access/access.js';
import { accessOfMember } from '../access/holder.js';
import { lockMemberAccess } from '../access/lock-member.js';
import { invalidKey } from '../access/authenticate.js';
import { type Caller } from '../access/caller.js';
import { refusalReasonOf } from '../access/key-lookup.js';
import { accessOf, findSecrets } from '../access/key-queries.js';
import type { Transaction } from '../db/transaction.js';
import type { Instant } from '../lib/instant.js';
import { lockKeys } from './queries.js';

/**
 * Locks the key of a request, or the member of its session, and returns its present access. A revocation or a change of
 * the role may come between the authentication and the body. `changed`: a second key to lock for a change. Throws
 * ApiError when the caller may no longer write keys.
 */
export async function lockCallerKey(
  tx: Transaction,
  { orgId, key, member }: Caller,
  at: Instant,
  changed?: string,
): Promise<Access> {
  if (member) {
    if (changed !== undefined) await lockKeys(tx, orgId, [changed], 'update');
    return accessOfMember(await lockMemberAccess(tx, member, 'keys:write', at));
  }
  if (!key) throw invalidKey();
  if (changed === undefined) await lockKeys(tx, orgId, [key.id], 'share');
  else await lockKeys(tx, orgId, [key.id, changed], 'update');
  const present = (await findSecrets(tx, [key.secret_prefix])).find(
    ({ id, hash }) => id === key.id && hash.equals(key.hash),
  );
  if (!present || refusalReasonOf(present, at) !== undefined) throw invalidKey();
  return accessOf(present);
}
