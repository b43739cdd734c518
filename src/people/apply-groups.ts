import { narrowedScopes, type Role } from '../access/roles.js';
import { PROVIDER } from '../audit/events/actor.js';
import type { GroupRule } from '../config/provider-settings.js';
import { GROUP_ROLES } from '../config/sign-in-options.js';
import type { Transaction } from '../db/transaction.js';
import type { Instant } from '../lib/instant.js';
import { addMemberIn } from '../members/add.js';
import { changeMemberIn } from '../members/change.js';
import { leavesNoOwner } from '../members/last-owner.js';
import { getMembersOfPerson, lockMember } from '../members/queries.js';
import { removeMemberIn } from '../members/remove.js';
import type { Identity } from './identity.js';
import { findOrgs } from './queries.js';

const STRONGEST: readonly Role[] = GROUP_ROLES;

/**
 * Gives, changes and takes the memberships that groups decide about. A membership that was added by name stays as it
 * is, and so does the last owner of an organization. Without rules no group gives anything: memberships by groups are
 * taken.
 */
export async function applyGroups(
  tx: Transaction,
  personId: string,
  { groups, email, name }: Pick<Identity, 'groups' | 'email' | 'name'>,
  rules: readonly GroupRule[],
  at: Instant,
): Promise<void> {
  const roles = rolesOf(groups, rules);
  const about = { actor: PROVIDER, at };
  for (const member of await getMembersOfPerson(tx, personId)) {
    const role = roles.get(member.org_slug);
    roles.delete(member.org_slug);
    if (!member.by_groups || role === member.role) continue;
    const locked = await lockMember(tx, member.org_id, { id: member.id });
    if (!locked) continue;
    if (leavesNoOwner(locked, role)) continue;
    if (role === undefined) {
      await removeMemberIn(tx, member.org_id, locked, about);
      continue;
    }
    // An administrator set the labels: a change of group must not open more sandboxes.
    const labels = narrowedScopes(role).length > 0 ? locked.member.labels : {};
    await changeMemberIn(tx, member.org_id, locked, { role, labels }, about);
  }
  if (email === null) return;
  for (const { id: orgId, slug } of await findOrgs(tx, [...roles.keys()])) {
    // The address of another account: an operator has to decide.
    if (await lockMember(tx, orgId, { email })) continue;
    await addMemberIn(
      tx,
      orgId,
      { email, role: roles.get(slug)!, displayName: name, personId, byGroups: true },
      about,
    );
  }
}

/** The strongest role in each organization, by slug. */
function rolesOf(groups: ReadonlySet<string>, rules: readonly GroupRule[]): Map<string, Role> {
  const roles = new Map<string, Role>();
  for (const { group, org, role } of rules) {
    const known = roles.get(org);
    if (!groups.has(group)) continue;
    if (known === undefined || STRONGEST.indexOf(role) < STRONGEST.indexOf(known)) roles.set(org, role);
  }
  return roles;
}
