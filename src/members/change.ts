import { isDeepStrictEqual } from 'node:util';
import type { Role } from '../access/roles.js';
import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Pool } from '../db/pool.js';
import { inTransaction, type Transaction } from '../db/transaction.js';
import type { Instant } from '../lib/instant.js';
import { checkLimits } from './check-access.js';
import { memberFacts } from './facts.js';
import { refuseWithoutOwner } from './last-owner.js';
import { lockMemberOrThrow } from './lock-member.js';
import { refuseUnlessOwner, type ChangedBy } from './owner-alone.js';
import { setAccess, type LockedMember, type MemberName, type MemberRow } from './queries.js';

/**
 * Changes the role of a member and its labels; its sessions have the new rights at once. Undefined keeps a part.
 * Throws ApiError for an unknown member, for an owner that only owners change, for the last owner, and for labels that
 * the role cannot have.
 */
export async function changeMember(
  pool: Pool,
  orgId: string,
  name: MemberName,
  access: { role?: Role | undefined; labels?: Record<string, string> | undefined },
  by: ChangedBy,
): Promise<MemberRow> {
  return inTransaction(pool, async (tx) => {
    const locked = await lockMemberOrThrow(tx, orgId, name);
    const { role = locked.member.role, labels = locked.member.labels } = access;
    await refuseUnlessOwner(tx, by, [locked.member.role, role]);
    return changeMemberIn(tx, orgId, locked, { role, labels }, by);
  });
}

/** The same in the transaction that has locked the member. A change to the present access records no event. */
export async function changeMemberIn(
  tx: Transaction,
  orgId: string,
  locked: LockedMember,
  { role, labels }: Pick<MemberRow, 'role' | 'labels'>,
  { actor, at }: { actor: EventActor; at: Instant },
): Promise<MemberRow> {
  const { member } = locked;
  if (role === member.role && isDeepStrictEqual(labels, member.labels)) return member;
  const changed = { ...member, role, labels };
  checkLimits(role, labels);
  refuseWithoutOwner(locked, role);
  await setAccess(tx, orgId, member.id, changed);
  await recordEvent(tx, {
    orgId,
    type: 'member_changed',
    actor,
    resourceId: member.id,
    at,
    payload: { ...memberFacts(changed), previous_role: member.role, previous_labels: member.labels },
  });
  return changed;
}
