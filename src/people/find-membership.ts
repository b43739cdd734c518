import type { ProviderSettings } from '../config/provider-settings.js';
import type { Transaction } from '../db/transaction.js';
import type { Instant } from '../lib/instant.js';
import { newId } from '../lib/uuid.js';
import { acceptInvitation } from '../members/accept-invitation.js';
import { getMembersOfPerson, linkMembers } from '../members/queries.js';
import { applyGroups } from './apply-groups.js';
import type { Identity } from './identity.js';
import { deleteStranger, putPerson, setLastOrg } from './queries.js';
import { SignInRefused, type RefusalCode } from './refused.js';

type Membership = Awaited<ReturnType<typeof getMembersOfPerson>>[number];

/**
 * The membership that a sign-in of a person opens: that of the invitation, that of the latest session, else the first.
 * An account gets a member by its verified address, once; later its subject decides, since an address can be given to
 * somebody else. Returns SignInRefused for a person without a membership, so that the changes of groups are committed.
 */
export async function findMembership(
  tx: Transaction,
  identity: Identity,
  { groupRules }: Pick<ProviderSettings, 'groupRules'>,
  { at, invitation }: { at: Instant; invitation: string | undefined },
): Promise<{ personId: string; membership: Membership } | SignInRefused> {
  const { issuer, subject, email, name } = identity;
  const person = await putPerson(tx, { id: newId(), issuer, subject, at });
  const joined =
    invitation !== undefined && email !== null
      ? await acceptInvitation(tx, invitation, at, { id: person.id, email, name })
      : undefined;
  const refuse = async (code: RefusalCode, message: string) => {
    // Anybody with an account of the provider could fill the table.
    await deleteStranger(tx, person.id);
    return new SignInRefused(email === null ? 'unverified_email' : code, message);
  };
  if (invitation !== undefined && !joined) {
    return refuse('invitation', 'the invitation is not for the account');
  }
  if (email !== null) await linkMembers(tx, person.id, email);
  await applyGroups(tx, person.id, identity, groupRules, at);
  const all = await getMembersOfPerson(tx, person.id);
  const wanted = joined?.org_id ?? person.last_org_id;
  const membership = all.find(({ org_id }) => org_id === wanted) ?? all[0];
  if (!membership) return refuse('no_member', 'the account is no member of an organization');
  await setLastOrg(tx, person.id, membership.org_id);
  return { personId: person.id, membership };
}
