import type { Caller } from '../access/caller.js';
import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import type { Instant } from '../lib/instant.js';
import { deleteInvitation, type InvitationRow } from './invitation-queries.js';
import { invitationFacts } from './invite.js';
import { refuseUnlessOwner } from './owner-alone.js';

/** Throws ApiError when there is no such invitation. `caller`: undefined for the operator. */
export async function revokeInvitation(
  pool: Pool,
  orgId: string,
  by: { id: string } | { email: string },
  { actor, caller, at }: { actor: EventActor; caller?: Caller; at: Instant },
): Promise<InvitationRow> {
  return inTransaction(pool, async (tx) => {
    if (caller) await refuseUnlessOwner(tx, caller, [], at);
    const invitation = await deleteInvitation(tx, orgId, by);
    if (!invitation) throw new ApiError('invitation_not_found');
    await recordEvent(tx, {
      orgId,
      type: 'member_invitation_revoked',
      actor,
      resourceId: invitation.id,
      at,
      payload: invitationFacts(invitation),
    });
    return invitation;
  });
}
