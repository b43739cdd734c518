import { recordEvent } from '../audit/events/record.js';
import { redactEmail } from '../audit/events/redact-email.js';
import type { EventActor } from '../audit/events/schema.js';
import { violatedConstraint, type Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now } from '../lib/instant.js';
import { findUnstorable } from '../lib/storable-text.js';
import { newId } from '../lib/uuid.js';
import type { OrgRole } from '../orgs/schema.js';
import { insertMember, type MemberRow } from './queries.js';

const LONGEST_EMAIL = 254;
const LONGEST_NAME = 200;

/** Adds a person to the members. Throws ExplainedError, which says what to change. */
export async function addMember(
  pool: Pool,
  orgId: string,
  { email, role, displayName }: { email: string; role: OrgRole; displayName: string | null },
  actor: EventActor,
): Promise<MemberRow> {
  if (!/^[^\s@*\0]+@[^\s@*\0]+$/.test(email) || email.length > LONGEST_EMAIL || !email.isWellFormed()) {
    throw new ExplainedError(
      `an e-mail address is like name@example.com, of at most ${LONGEST_EMAIL} characters`,
    );
  }
  if (
    displayName !== null &&
    (displayName.trim() === '' ||
      displayName.length > LONGEST_NAME ||
      findUnstorable(displayName) !== undefined)
  ) {
    throw new ExplainedError(`the name of a member must have 1 to ${LONGEST_NAME} characters`);
  }
  const at = now();
  const member: MemberRow = {
    id: newId(),
    user_id: newId(),
    email,
    role,
    display_name: displayName,
    joined_at: at,
  };
  try {
    await inTransaction(pool, async (tx) => {
      await insertMember(tx, orgId, member);
      await recordEvent(tx, {
        orgId,
        type: 'member_added',
        actor,
        resourceId: member.id,
        at,
        payload: { member_id: member.id, user_id: member.user_id, redacted_email: redactEmail(email), role },
      });
    });
  } catch (error) {
    if (violatedConstraint(error) !== 'org_members_email') throw error;
    throw new ExplainedError(`${email} is a member already: see "sandkeep member list"`, { cause: error });
  }
  return member;
}
