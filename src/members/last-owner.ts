import type { Role } from '../access/roles.js';
import { ApiError } from '../http/errors.js';
import type { LockedMember } from './queries.js';

/** Whether a change leaves no owner. `role`: the role afterwards; undefined: the member goes. */
export function leavesNoOwner({ member, otherOwners }: LockedMember, role: Role | undefined): boolean {
  return member.role === 'owner' && role !== 'owner' && otherOwners === 0;
}

/** Throws ApiError when the change leaves no owner. */
export function refuseWithoutOwner(locked: LockedMember, role: Role | undefined): void {
  if (!leavesNoOwner(locked, role)) return;
  const { member } = locked;
  throw new ApiError(
    'last_owner',
    `${member.email} is the last owner of the organization: make another owner first`,
  );
}
