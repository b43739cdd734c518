import type { MemberSessionRow } from '../access/member-session.js';
import { memberActor } from '../access/holder.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { memberFacts } from '../members/facts.js';
import { getMembersOfPerson } from '../members/queries.js';
import { setLastOrg } from '../people/queries.js';
import { openMemberSession, type OpenedSession } from './open-member-session.js';
import { takeMemberSession } from './queries.js';

/**
 * Replaces the session by one of another organization of the person, with a new token and the same absolute end.
 * `pool`: not that of the request, which sees one organization only.
 */
export async function switchOrganization(
  { pool, now }: Pick<Context, 'pool' | 'now'>,
  member: MemberSessionRow,
  orgId: string,
): Promise<OpenedSession> {
  const { person_id: personId } = member;
  if (personId === null) throw new ApiError('org_not_found');
  return inTransaction(pool, async (tx) => {
    const at = now();
    const memberships = await getMembersOfPerson(tx, personId);
    const target = memberships.find(({ org_id }) => org_id === orgId);
    if (!target) throw new ApiError('org_not_found');
    const ended = await takeMemberSession(tx, member.org_id, member.session_hash);
    if (!ended) throw new ApiError('invalid_session');
    await recordEvent(tx, {
      orgId: member.org_id,
      type: 'member_session_ended',
      actor: memberActor(member),
      resourceId: member.member_id,
      at,
      payload: {
        session_id: ended.id,
        ...memberFacts({ ...member, id: member.member_id }),
        reason: 'switched',
      },
    });
    await setLastOrg(tx, personId, orgId);
    return openMemberSession(tx, target, {
      at,
      method: 'switch',
      account: { person_id: personId, sid: ended.sid, sealed: ended.sealed },
      expiresAt: member.session_expires_at,
    });
  });
}
