import { deleteAccountSessions } from '../access/member-session.js';
import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { now } from '../lib/instant.js';
import { memberFacts } from './facts.js';
import { lockMemberOrThrow } from './lock-member.js';
import { clearPerson, type MemberRow } from './queries.js';

/**
 * Separates a member from its account of the provider, which ends the sessions of the account. Throws ApiError when no
 * member has this address.
 */
export async function unlinkMember(
  pool: Pool,
  orgId: string,
  email: string,
  actor: EventActor,
): Promise<MemberRow> {
  return inTransaction(pool, async (tx) => {
    const { member } = await lockMemberOrThrow(tx, orgId, { email });
    await clearPerson(tx, orgId, member.id);
    // A later sign-in of the same account must not revive them.
    await deleteAccountSessions(tx, orgId, member.id);
    await recordEvent(tx, {
      orgId,
      type: 'member_account_unlinked',
      actor,
      resourceId: member.id,
      at: now(),
      payload: memberFacts(member),
    });
    return member;
  });
}
