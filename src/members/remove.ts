import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Pool } from '../db/pool.js';
import { inTransaction, type Transaction } from '../db/transaction.js';
import { now, type Instant } from '../lib/instant.js';
import { memberFacts } from './facts.js';
import { refuseWithoutOwner } from './last-owner.js';
import { deleteMember, lockMember, type LockedMember, type MemberRow } from './queries.js';

/** Removes a member, with its sessions. Undefined: no member has this address. Throws ApiError for the last owner. */
export async function removeMember(
  pool: Pool,
  orgId: string,
  email: string,
  actor: EventActor,
): Promise<MemberRow | undefined> {
  return inTransaction(pool, async (tx) => {
    const locked = await lockMember(tx, orgId, { email });
    return locked && removeMemberIn(tx, orgId, locked, { actor, at: now() });
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
