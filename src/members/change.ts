import type { Role } from '../access/roles.js';
import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Pool } from '../db/pool.js';
import { inTransaction, type Transaction } from '../db/transaction.js';
import { now, type Instant } from '../lib/instant.js';
import { checkLimits } from './check-access.js';
import { memberFacts } from './facts.js';
import { refuseWithoutOwner } from './last-owner.js';
import { lockMember, setAccess, type LockedMember, type MemberRow } from './queries.js';

/**
 * Changes the role of a member and its limits; its sessions have the new rights at once. `labels`: undefined keeps
 * them. Undefined: no member has this address. Throws ApiError for the last owner and for limits that the role cannot
 * have.
 */
export async function changeMember(
  pool: Pool,
  orgId: string,
  email: string,
  { role, labels }: { role?: Role | undefined; labels?: Record<string, string> | undefined },
  actor: EventActor,
): Promise<MemberRow | undefined> {
  return inTransaction(pool, async (tx) => {
    const locked = await lockMember(tx, orgId, { email });
    if (!locked) return undefined;
    const { member } = locked;
    const wanted = { role: role ?? member.role, labels: labels ?? member.labels };
    return changeMemberIn(tx, orgId, locked, wanted, { actor, at: now() });
  });
}

/** The same in the transaction that has locked the member. */
export async function changeMemberIn(
  tx: Transaction,
  orgId: string,
  locked: LockedMember,
  { role, labels }: Pick<MemberRow, 'role' | 'labels'>,
  { actor, at }: { actor: EventActor; at: Instant },
): Promise<MemberRow> {
  const { member } = locked;
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
