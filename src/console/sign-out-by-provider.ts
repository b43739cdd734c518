import { hashOf } from '../access/key-secret.js';
import { memberActor } from '../access/holder.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { addMillis } from '../lib/instant.js';
import { memberFacts } from '../members/facts.js';
import { getMember } from '../members/queries.js';
import { LOGOUT_TOKEN_KEPT_MS, type LogoutToken } from '../people/logout-token.js';
import { noteLogoutToken } from '../people/queries.js';
import { deleteSessionsOfAccount } from './queries.js';

/** Ends the sessions that a verified logout token names. False: the token was used before. */
export async function signOutByProvider(
  { pool, now }: Pick<Context, 'pool' | 'now'>,
  issuer: string,
  token: LogoutToken,
): Promise<boolean> {
  return inTransaction(pool, async (tx) => {
    const at = now();
    const isNew = await noteLogoutToken(
      tx,
      hashOf(`${issuer} ${token.jti}`),
      addMillis(at, LOGOUT_TOKEN_KEPT_MS),
    );
    if (!isNew) return false;
    for (const { org_id: orgId, id, member_id } of await deleteSessionsOfAccount(tx, issuer, token)) {
      const member = await getMember(tx, orgId, member_id);
      if (!member) continue;
      await recordEvent(tx, {
        orgId,
        type: 'member_session_ended',
        actor: memberActor(member),
        resourceId: member_id,
        at,
        payload: { session_id: id, ...memberFacts(member), reason: 'provider' },
      });
    }
    return true;
  });
}
