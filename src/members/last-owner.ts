import type { Role } from '../access/roles.js';
import { ApiError } from '../http/errors.js';
import type { LockedMember } from './queries.js';

/** Throws ApiError when the change leaves no owner. `role`: the role afterwards; undefined: the member goes. */
export function refuseWithoutOwner({ member, otherOwners }: LockedMember, role: Role | undefined): void {
  if (member.role !== 'owner' || role === 'owner' || otherOwners > 0) return;
  throw new ApiError(
    'last_owner',
    `${member.email} is the last owner of the organization: make another owner first`,
  );
}
