import type { Access } from '../access/access.js';
import { invalidKey } from '../access/authenticate.js';
import { type Caller } from '../access/caller.js';
import { refusalReasonOf } from '../access/key-lookup.js';
import { accessOf, findSecrets } from '../access/key-queries.js';
import type { Transaction } from '../db/transaction.js';
import type { Instant } from '../lib/instant.js';
import { lockKeys } from './queries.js';

/**
 * What the key of a request opens now; it does so until the transaction ends. At the door that was asked before the body was
 * there, which may be long ago: what makes keys or ends them would outlive a revocation or a new secret that came between.
 * `changed`: another key that is locked as well, to be changed. Throws ApiError when the key is not taken any more.
 */
export async function lockCallerKey(
  tx: Transaction,
  { orgId, key }: Caller,
  at: Instant,
  changed?: string,
): Promise<Access> {
  if (!key) throw invalidKey();
  if (changed === undefined) await lockKeys(tx, orgId, [key.id], 'share');
  else await lockKeys(tx, orgId, [key.id, changed], 'update');
  const present = (await findSecrets(tx, [key.secret_prefix])).find(
    ({ id, hash }) => id === key.id && hash.equals(key.hash),
  );
  if (!present || refusalReasonOf(present, at) !== undefined) throw invalidKey();
  return accessOf(present);
}
