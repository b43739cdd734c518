import type { Role } from '../access/roles.js';
import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import { violatedConstraint, type Pool } from '../db/pool.js';
import { inTransaction, type Transaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { now, type Instant } from '../lib/instant.js';
import { newId } from '../lib/uuid.js';
import { checkLimits } from './check-access.js';
import { checkEmail, checkName } from './check-person.js';
import { memberFacts } from './facts.js';
import { insertMember, type MemberRow } from './queries.js';

export interface NewMember {
  email: string;
  role: Role;
  labels?: Record<string, string>;
  displayName: string | null;
  /** Default: a new one. */
  userId?: string;
  /** The account of the provider. */
  personId?: string;
  /** Whether groups of the provider give and take the membership. */
  byGroups?: boolean;
}

/** Adds a person to the members. Throws ApiError, which says what to change. */
export async function addMember(
  pool: Pool,
  orgId: string,
  member: NewMember,
  actor: EventActor,
): Promise<MemberRow> {
  checkEmail(member.email);
  checkName(member.displayName);
  checkLimits(member.role, member.labels ?? {});
  try {
    return await inTransaction(pool, (tx) => addMemberIn(tx, orgId, member, { actor, at: now() }));
  } catch (error) {
    if (violatedConstraint(error) !== 'org_members_email') throw error;
    throw alreadyMember(member.email);
  }
}

/** The same in the transaction of the caller, for a person that has been checked. */
export async function addMemberIn(
  tx: Transaction,
  orgId: string,
  { email, role, labels = {}, displayName, userId = newId(), personId, byGroups = false }: NewMember,
  { actor, at }: { actor: EventActor; at: Instant },
): Promise<MemberRow> {
  const member: MemberRow = {
    id: newId(),
    user_id: userId,
    email,
    role,
    labels,
    display_name: displayName,
    joined_at: at,
  };
  await insertMember(tx, orgId, member, { personId: personId ?? null, byGroups });
  await recordEvent(tx, {
    orgId,
    type: 'member_added',
    actor,
    resourceId: member.id,
    at,
    payload: memberFacts(member),
  });
  return member;
}

export function alreadyMember(email: string): ApiError {
  return new ApiError('member_already_exists', `${email} is a member already: see "sandkeep member list"`);
}
