import { recordEvent } from '../audit/events/record.js';
import { redactEmail } from '../audit/events/redact-email.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { now } from '../lib/instant.js';
import { deleteMember, type MemberRow } from './queries.js';

/** Removes a member. Undefined: no member has this address. */
export async function removeMember(
  pool: Pool,
  orgId: string,
  email: string,
  actor: EventActor,
): Promise<MemberRow | undefined> {
  return inTransaction(pool, async (tx) => {
    const member = await deleteMember(tx, orgId, email);
    if (!member) return undefined;
    const { id, user_id, role } = member;
    await recordEvent(tx, {
      orgId,
      type: 'member_removed',
      actor,
      resourceId: id,
      at: now(),
      payload: { member_id: id, user_id, redacted_email: redactEmail(member.email), role },
    });
    return member;
  });
}
