import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Pool } from '../db/pool.js';
import { inTransaction, type Transaction } from '../db/transaction.js';
import type { Instant } from '../lib/instant.js';
import { memberFacts } from './facts.js';
import { refuseWithoutOwner } from './last-owner.js';
import { lockMemberOrThrow } from './lock-member.js';
import { refuseUnlessOwner, type ChangedBy } from './owner-alone.js';
import { deleteMember, type LockedMember, type MemberName, type MemberRow } from './queries.js';

/**
 * Removes a member, with its sessions. Throws ApiError for an unknown member, for an owner that only owners remove, and
 * for the last owner.
 */
export async function removeMember(
  pool: Pool,
  orgId: string,
  name: MemberName,
  by: ChangedBy,
): Promise<MemberRow> {
  return inTransaction(pool, async (tx) => {
    const locked = await lockMemberOrThrow(tx, orgId, name);
    await refuseUnlessOwner(tx, by, [locked.member.role]);
    return removeMemberIn(tx, orgId, locked, by);
  });
}

/** The same in the transaction that has locked the member. */
export async function removeMemberIn(
  tx: Transaction,
  orgId: string,
  locked: LockedMember,
  { actor, at }: { actor: EventActor; at: Instant },
): Promise<MemberRow> {
  const { member } = locked;
  refuseWithoutOwner(locked, undefined);
  await deleteMember(tx, orgId, member.id);
  await recordEvent(tx, {
    orgId,
    type: 'member_removed',
    actor,
    resourceId: member.id,
    at,
    payload: memberFacts(member),
  });
  return member;
}
