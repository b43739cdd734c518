import type { Caller } from '../access/caller.js';
import { callerOfHolder } from '../access/holder.js';
import { hashOf } from '../access/key-secret.js';
import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { acceptInvitation } from '../members/accept-invitation.js';
import { INVITATION_TOKEN } from '../members/invite.js';
import { LINK_TOKEN } from '../members/link.js';
import { takeLink } from '../members/queries.js';
import { openMemberSession, type OpenedSession } from './open-member-session.js';

/**
 * Uses the link of a member up, or an invitation, and opens a session. With a provider an invitation needs its account:
 * the person signs in by it. Throws ApiError for a link that is unknown, used or expired.
 */
export async function signInByLink(
  { pool, now, settings }: Pick<Context, 'pool' | 'now' | 'settings'>,
  token: string,
): Promise<{ caller: Caller; session: OpenedSession }> {
  const isInvitation = INVITATION_TOKEN.isWellFormed(token);
  if (isInvitation && settings.provider) {
    throw new ApiError('invalid_sign_in_link', 'the invitation needs an account: sign in with the provider');
  }
  if (!isInvitation && !LINK_TOKEN.isWellFormed(token)) throw new ApiError('invalid_sign_in_link');
  return inTransaction(pool, async (tx) => {
    const at = now();
    const member = isInvitation
      ? await acceptInvitation(tx, token, at)
      : await takeLink(tx, hashOf(token), at);
    if (!member) throw new ApiError('invalid_sign_in_link');
    const session = await openMemberSession(tx, member, { at, method: 'link' });
    return { caller: callerOfHolder(session.holder), session };
  });
}
