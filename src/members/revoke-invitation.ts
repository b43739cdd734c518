import { recordEvent } from '../audit/events/record.js';
import type { Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { deleteInvitation, type InvitationName, type InvitationRow } from './invitation-queries.js';
import { invitationFacts } from './invite.js';
import { refuseUnlessOwner, type ChangedBy } from './owner-alone.js';

/** Throws ApiError when there is no such invitation, and for one of an owner that only owners revoke. */
export async function revokeInvitation(
  pool: Pool,
  orgId: string,
  name: InvitationName,
  by: ChangedBy,
): Promise<InvitationRow> {
  const { actor, at } = by;
  return inTransaction(pool, async (tx) => {
    const invitation = await deleteInvitation(tx, orgId, name);
    await refuseUnlessOwner(tx, by, [invitation?.role]);
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
