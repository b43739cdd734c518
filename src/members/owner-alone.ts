import type { Caller } from '../access/caller.js';
import { lockMemberAccess } from '../access/lock-member.js';
import type { Role } from '../access/roles.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Transaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import type { Instant } from '../lib/instant.js';

/** The author of a change, and its time. */
export interface ChangedBy {
  actor: EventActor;
  /** Undefined: the operator, who may do everything. */
  caller?: Caller;
  at: Instant;
}

/**
 * Only owners add, change and remove owners: an administrator, or the key that one made, does not rise. The role of
 * the caller is read again, because it may have changed since the authentication. Throws ApiError, also for a caller
 * that is no longer an administrator.
 */
export async function refuseUnlessOwner(
  tx: Transaction,
  { caller, at }: Omit<ChangedBy, 'actor'>,
  roles: readonly (Role | undefined)[],
): Promise<void> {
  if (!caller) return;
  const { member } = caller;
  const present = member && (await lockMemberAccess(tx, member, 'org:admin', at));
  if (!roles.includes('owner')) return;
  if (present?.role !== 'owner') throw new ApiError('owner_required');
}
