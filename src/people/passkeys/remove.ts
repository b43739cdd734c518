import { callerOfHolder } from '../../access/holder.js';
import type { MemberSessionRow } from '../../access/member-session.js';
import { recordEvent } from '../../audit/events/record.js';
import type { Context } from '../../context.js';
import type { Pool } from '../../db/pool.js';
import { inTransaction, type Transaction } from '../../db/transaction.js';
import { ApiError } from '../../http/errors.js';
import { memberFacts } from '../../members/facts.js';
import { lockMemberOrThrow } from '../../members/lock-member.js';
import type { ChangedBy } from '../../members/owner-alone.js';
import type { MemberName, MemberRow } from '../../members/queries.js';
import { deletePasskeys, getPasskeys, hasAccount } from './queries.js';
import { lockSession } from './register.js';

/**
 * Removes a passkey of the caller, and ends the sessions that it opened. Throws ApiError for the last one, unless an
 * account of the provider signs the member in.
 */
export async function removeOwnPasskey(
  {
    pool,
    now,
    settings,
  }: Pick<Context, 'pool' | 'now'> & { settings: Pick<Context['settings'], 'provider'> },
  member: MemberSessionRow,
  id: string,
): Promise<void> {
  const { org_id: orgId, member_id: memberId } = member;
  await inTransaction(pool, async (tx) => {
    const at = now();
    const { actor } = callerOfHolder(await lockSession(tx, member, at));
    const passkeys = await getPasskeys(tx, orgId, memberId);
    if (!passkeys.some((passkey) => passkey.id === id)) throw new ApiError('passkey_not_found');
    const hasOtherWay = settings.provider !== null && (await hasAccount(tx, orgId, memberId));
    if (passkeys.length === 1 && !hasOtherWay) throw new ApiError('last_passkey');
    await removeIn(tx, orgId, { ...member, id: memberId }, id, { actor, at });
  });
}

/**
 * Removes one passkey of a member for the operator, or each of them (`id`: null), with the sessions that they opened.
 * Returns the removed ones. Throws ApiError.
 */
export async function removePasskeys(
  pool: Pool,
  orgId: string,
  name: MemberName,
  id: string | null,
  by: Pick<ChangedBy, 'actor' | 'at'>,
): Promise<{ id: string; name: string }[]> {
  return inTransaction(pool, async (tx) => {
    const { member } = await lockMemberOrThrow(tx, orgId, name);
    const removed = await removeIn(tx, orgId, member, id, by);
    if (id !== null && removed.length === 0) throw new ApiError('passkey_not_found');
    return removed;
  });
}

async function removeIn(
  tx: Transaction,
  orgId: string,
  member: Pick<MemberRow, 'id' | 'user_id' | 'email' | 'role' | 'labels'>,
  id: string | null,
  { actor, at }: Pick<ChangedBy, 'actor' | 'at'>,
): Promise<{ id: string; name: string }[]> {
  const removed = await deletePasskeys(tx, orgId, member.id, id);
  for (const { id: passkeyId, name } of removed) {
    await recordEvent(tx, {
      orgId,
      type: 'member_passkey_removed',
      actor,
      resourceId: member.id,
      at,
      payload: { ...memberFacts(member), passkey_id: passkeyId, name },
    });
  }
  return removed;
}
