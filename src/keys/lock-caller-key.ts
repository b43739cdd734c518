import type { Access } from '../access/access.js';
import { accessOfMember, callerOfHolder } from '../access/holder.js';
import { lockMemberAccess, lockMemberRow } from '../access/lock-member.js';
import { invalidKey } from '../access/authenticate.js';
import { type Caller } from '../access/caller.js';
import { refusalReasonOf } from '../access/key-lookup.js';
import { findSecrets } from '../access/key-queries.js';
import { requireScope } from '../access/required-scope.js';
import type { RouteScope } from '../access/scopes.js';
import type { Transaction } from '../db/transaction.js';
import type { Instant } from '../lib/instant.js';
import { lockKeys } from './queries.js';

/**
 * Locks the key of a request, with its member, or the member of its session, and returns its present access. A
 * revocation or a change of the role may come between the authentication and the body. `changed`: a second key to lock
 * for a change. Throws ApiError when the caller may no longer write keys; `scope`: do the same.
 */
export async function lockCallerKey(
  tx: Transaction,
  { orgId, key, member }: Caller,
  at: Instant,
  { changed, scope = 'keys:write' }: { changed?: string; scope?: RouteScope } = {},
): Promise<Access> {
  if (member) {
    if (changed !== undefined) await lockKeys(tx, orgId, [changed], 'update');
    return accessOfMember(await lockMemberAccess(tx, member, scope, at));
  }
  if (!key) throw invalidKey();
  if (changed === undefined) await lockKeys(tx, orgId, [key.id], 'share');
  else await lockKeys(tx, orgId, [key.id, changed], 'update');
  if (key.member_id !== null) await lockMemberRow(tx, orgId, key.member_id);
  const present = (await findSecrets(tx, [key.secret_prefix])).find(
    ({ id, hash }) => id === key.id && hash.equals(key.hash),
  );
  if (!present || refusalReasonOf(present, at) !== undefined) throw invalidKey();
  const caller = callerOfHolder(present);
  requireScope(caller, scope);
  return caller.access;
}
