import type { Transaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { lockMember, type LockedMember, type MemberName } from './queries.js';

/** Locks a member for a change. Throws ApiError when there is none of this name. */
export async function lockMemberOrThrow(
  tx: Transaction,
  orgId: string,
  name: MemberName,
): Promise<LockedMember> {
  const locked = await lockMember(tx, orgId, name);
  if (locked) return locked;
  const message = 'email' in name ? `${name.email} is not a member: see "sandkeep member list"` : undefined;
  throw new ApiError('member_not_found', message);
}
