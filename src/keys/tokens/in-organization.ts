import { memberActor } from '../../access/holder.js';
import type { SecretRow } from '../../access/key-queries.js';
import { lockMemberRow } from '../../access/lock-member.js';
import type { Context } from '../../context.js';
import { inTransaction, type Transaction } from '../../db/transaction.js';
import type { Instant } from '../../lib/instant.js';
import { addKey } from '../create.js';
import { findPlace, findTokenOf, isTokenValid } from './place-queries.js';
import { checkTokenCount } from './create.js';

/** It is shown to the other organization, so it tells nothing of the first one. */
const NAME = 'personal token of another organization';

/**
 * The key as which an accepted key acts in the organization of this slug. A personal token acts there as the member
 * that is the same account of the provider, by a row of its own. Every other key opens its own organization alone.
 * Undefined: there is no such organization, or the key opens nothing of it.
 */
export async function keyInOrganization(
  { pool, now }: Pick<Context, 'pool' | 'now'>,
  key: SecretRow,
  slug: string,
): Promise<SecretRow | undefined> {
  const place = await findPlace(pool, key, slug);
  if (!place) return undefined;
  if (place.org_id === key.org_id) return key;
  if (!place.member) return undefined;
  const { id } = place.member;
  const known = await findTokenOf(pool, key.id, id);
  if (known) return known;
  return inTransaction(pool, async (tx) => {
    await openToken(tx, key, slug, id, now());
    return findTokenOf(tx, key.id, id);
  });
}

async function openToken(
  tx: Transaction,
  key: SecretRow,
  slug: string,
  memberId: string,
  at: Instant,
): Promise<void> {
  // A revocation of the token either finds the new row by its trigger, or comes first and is seen here.
  if (!(await isTokenValid(tx, key, at))) return;
  const before = await findPlace(tx, key, slug);
  if (before?.member?.id !== memberId) return;
  const { org_id: orgId } = before;
  // The second of two first uses waits here, and finds the row of the first.
  await lockMemberRow(tx, orgId, memberId, 'no key update');
  const member = (await findPlace(tx, key, slug))?.member;
  if (member?.id !== memberId || (await findTokenOf(tx, key.id, memberId))) return;
  await checkTokenCount(tx, orgId, memberId, at);
  // Nobody gets the secret of this row: callers have that of the token behind it.
  await addKey(tx, {
    orgId,
    name: NAME,
    access: { scopes: key.scopes, labels: {}, cidrs: [], expiresAt: key.expires_at, replaced: false },
    actor: memberActor(member),
    at,
    memberId,
    of: { orgId: key.org_id, id: key.id },
  });
}
