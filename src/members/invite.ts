import { hashOf } from '../access/key-secret.js';
import type { Role } from '../access/roles.js';
import { recordEvent } from '../audit/events/record.js';
import { redactEmail } from '../audit/events/redact-email.js';
import type { Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { addMillis, shortInstant } from '../lib/instant.js';
import { tokenKind } from '../lib/token.js';
import { newId } from '../lib/uuid.js';
import { alreadyMember } from './add.js';
import { checkLimits } from './check-access.js';
import { checkEmail } from './check-person.js';
import { countInvitations, lockInvitation, putInvitation, type InvitationRow } from './invitation-queries.js';
import { refuseUnlessOwner, type ChangedBy } from './owner-alone.js';
import { lockMember } from './queries.js';

export const INVITATION_TOKEN = tokenKind('ski_');
const HOUR_MS = 60 * 60_000;
export const DEFAULT_INVITATION_HOURS = 72;
export const LONGEST_INVITATION_HOURS = 30 * 24;
export const MOST_INVITATIONS = 500;

export interface InvitationRequest {
  email: string;
  role: Role;
  labels: Record<string, string>;
  hours: number;
}

/**
 * Invites an address to the organization. A further invitation of the address replaces the first. The token is returned
 * only here. Throws ApiError.
 */
export async function inviteMember(
  pool: Pool,
  orgId: string,
  { email, role, labels, hours }: InvitationRequest,
  by: ChangedBy,
): Promise<{ invitation: InvitationRow; token: string }> {
  const { actor, at } = by;
  checkEmail(email);
  checkLimits(role, labels);
  const token = INVITATION_TOKEN.make();
  const invitation: InvitationRow = {
    id: newId(),
    email,
    role,
    labels,
    created_at: at,
    created_by: actor,
    expires_at: addMillis(at, hours * HOUR_MS),
  };
  await inTransaction(pool, async (tx) => {
    const known = await lockMember(tx, orgId, { email });
    const previous = await lockInvitation(tx, orgId, email);
    await refuseUnlessOwner(tx, by, [role, previous?.role]);
    if (known) throw alreadyMember(email);
    if (!previous && (await countInvitations(tx, orgId)) >= MOST_INVITATIONS) {
      throw new ApiError('quota_exceeded', `an organization has at most ${MOST_INVITATIONS} invitations`, {
        limit: MOST_INVITATIONS,
      });
    }
    await putInvitation(tx, orgId, invitation, hashOf(token));
    await recordEvent(tx, {
      orgId,
      type: 'member_invited',
      actor,
      resourceId: invitation.id,
      at,
      payload: {
        ...invitationFacts(invitation),
        expires_at: shortInstant(invitation.expires_at),
        replaces: previous?.id ?? null,
      },
    });
  });
  return { invitation, token };
}

/** The invitation in the payload of an audit event, which shows no address. */
export function invitationFacts({ id, email, role, labels }: InvitationRow) {
  return { invitation_id: id, redacted_email: redactEmail(email), role, labels };
}
