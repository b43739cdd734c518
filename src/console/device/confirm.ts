import { lockMemberAccess } from '../../access/lock-member.js';
import type { MemberSessionRow } from '../../access/member-session.js';
import type { Context } from '../../context.js';
import { inTransaction } from '../../db/transaction.js';
import { ApiError } from '../../http/errors.js';
import { readUserCode } from './codes.js';
import { findWaiting, setAnswer, type DeviceSignIn } from './queries.js';

/** Throws ApiError for a code that no device waits with. */
export async function findDevice(
  { pool, now }: Pick<Context, 'pool' | 'now'>,
  text: string,
): Promise<DeviceSignIn> {
  const code = readUserCode(text);
  const device = code === undefined ? undefined : await findWaiting(pool, code, now(), { lock: false });
  if (!device) throw new ApiError('device_not_found');
  return device;
}

/** Lets a device in as the member, or refuses it. Its next poll learns so. */
export async function answerDevice(
  { pool, now }: Pick<Context, 'pool' | 'now'>,
  member: MemberSessionRow,
  text: string,
  { allow }: { allow: boolean },
): Promise<void> {
  const code = readUserCode(text);
  if (code === undefined) throw new ApiError('device_not_found');
  await inTransaction(pool, async (tx) => {
    const at = now();
    await lockMemberAccess(tx, member, 'any', at);
    const device = await findWaiting(tx, code, at, { lock: true });
    if (!device) throw new ApiError('device_not_found');
    await setAnswer(tx, device.hash, allow ? member : null);
  });
}
