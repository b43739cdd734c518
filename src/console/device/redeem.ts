import { hashOf } from '../../access/key-secret.js';
import { lockMemberRow } from '../../access/lock-member.js';
import type { Context } from '../../context.js';
import { inTransaction } from '../../db/transaction.js';
import { ApiError } from '../../http/errors.js';
import { createToken, DEFAULT_TOKEN_DAYS } from '../../keys/tokens/create.js';
import type { TokenRow } from '../../keys/tokens/queries.js';
import { microsOf } from '../../lib/instant.js';
import { getMember } from '../../members/queries.js';
import { DEVICE_CODE } from './codes.js';
import { deleteDeviceSignIn, notePoll } from './queries.js';

export const POLL_SECS = 5;
/** A poll may come a little early. */
const EARLIEST_POLL_MICROS = 4_000_000n;

/** The errors of RFC 8628, section 3.5. */
export type PollProblem = 'authorization_pending' | 'slow_down' | 'access_denied' | 'expired_token';

/** The personal token of the member who confirmed the code, once. */
export async function redeemDeviceCode(
  { pool, now }: Pick<Context, 'pool' | 'now'>,
  code: string,
): Promise<{ token: TokenRow; secret: string } | PollProblem> {
  if (!DEVICE_CODE.isWellFormed(code)) return 'expired_token';
  const hash = hashOf(code);
  return inTransaction(pool, async (tx) => {
    const at = now();
    const device = await notePoll(tx, hash, at);
    if (!device || device.expires_at <= at) return 'expired_token';
    const { member_org_id: orgId, member_id: memberId, polledAt, client } = device;
    if (device.denied) {
      await deleteDeviceSignIn(tx, hash);
      return 'access_denied';
    }
    if (orgId === null || memberId === null) {
      const isEarly = polledAt !== null && microsOf(at) - microsOf(polledAt) < EARLIEST_POLL_MICROS;
      return isEarly ? 'slow_down' : 'authorization_pending';
    }
    await deleteDeviceSignIn(tx, hash);
    await lockMemberRow(tx, orgId, memberId, 'no key update');
    const member = await getMember(tx, orgId, memberId);
    if (!member) return 'access_denied';
    const owner = { ...member, org_id: orgId, member_id: memberId };
    return createToken(tx, owner, { name: client, scopes: undefined, days: DEFAULT_TOKEN_DAYS }, at);
  }).catch((error: unknown) => {
    // The member has too many tokens: the device cannot mend that.
    if (error instanceof ApiError) return 'access_denied';
    throw error;
  });
}
