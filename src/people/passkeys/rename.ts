import { callerOfHolder } from '../../access/holder.js';
import type { MemberSessionRow } from '../../access/member-session.js';
import { recordEvent } from '../../audit/events/record.js';
import type { Context } from '../../context.js';
import { inTransaction } from '../../db/transaction.js';
import { ApiError } from '../../http/errors.js';
import { memberFacts } from '../../members/facts.js';
import { checkPasskeyName } from './name.js';
import { getPasskeys, renamePasskey, type PasskeyRow } from './queries.js';
import { lockSession } from './register.js';

/** Gives a passkey of the caller another name. It signs in as before. Throws ApiError. */
export async function renameOwnPasskey(
  { pool, now }: Pick<Context, 'pool' | 'now'>,
  member: MemberSessionRow,
  id: string,
  wanted: string,
): Promise<PasskeyRow & { is_current: boolean }> {
  const name = checkPasskeyName(wanted);
  const { org_id: orgId, member_id: memberId, session_hash: session } = member;
  return inTransaction(pool, async (tx) => {
    const at = now();
    const { actor } = callerOfHolder(await lockSession(tx, member, at));
    const passkeys = await getPasskeys(tx, orgId, memberId, session);
    const passkey = passkeys.find((known) => known.id === id);
    if (!passkey) throw new ApiError('passkey_not_found');
    if (passkey.name === name) return passkey;
    await renamePasskey(tx, orgId, id, name);
    await recordEvent(tx, {
      orgId,
      type: 'member_passkey_renamed',
      actor,
      resourceId: memberId,
      at,
      payload: {
        ...memberFacts({ ...member, id: memberId }),
        passkey_id: id,
        name,
        previous_name: passkey.name,
      },
    });
    return { ...passkey, name };
  });
}
