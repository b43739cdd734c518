import { memberActor } from '../access/holder.js';
import { hashOf } from '../access/key-secret.js';
import type { Transaction } from '../db/transaction.js';
import type { Instant } from '../lib/instant.js';
import { newId } from '../lib/uuid.js';
import { addMemberIn } from './add.js';
import { takeInvitation } from './invitation-queries.js';
import { INVITATION_TOKEN } from './invite.js';
import { getMembersOfPerson, lockMember, type MemberRow } from './queries.js';

/**
 * Uses an invitation up and makes the person a member. A person who is one already stays as they are. Undefined if the
 * token is not a valid invitation of the person.
 * `person`: the account of the provider with its verified address; undefined: the holder of the link is the person.
 */
export async function acceptInvitation(
  tx: Transaction,
  token: string,
  at: Instant,
  person?: { id: string; email: string; name: string | null },
): Promise<(MemberRow & { org_id: string }) | undefined> {
  if (!INVITATION_TOKEN.isWellFormed(token)) return undefined;
  const invitation = await takeInvitation(tx, hashOf(token), at, person?.email ?? null);
  if (!invitation) return undefined;
  const { org_id: orgId, email, role, labels } = invitation;
  const known = await lockMember(tx, orgId, { email });
  // The address was added meanwhile.
  if (known) return person ? { ...known.member, org_id: orgId } : undefined;
  // The member of the account has an earlier address.
  const own = person && (await getMembersOfPerson(tx, person.id)).find(({ org_id }) => org_id === orgId);
  if (own) return own;
  const userId = newId();
  const displayName = person?.name ?? null;
  const member = await addMemberIn(
    tx,
    orgId,
    { email, role, labels, displayName, userId, ...(person ? { personId: person.id } : {}) },
    { actor: memberActor({ user_id: userId, email, display_name: displayName }), at },
  );
  return { ...member, org_id: orgId };
}
