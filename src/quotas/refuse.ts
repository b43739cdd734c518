import { isNarrowed } from '../access/access.js';
import type { Caller } from '../access/caller.js';
import { ApiError } from '../http/errors.js';
import type { Limit } from './limits.js';

/** A key that is narrowed to labels must not learn the totals of the organization. */
export function refuseTotal(
  { access }: Caller,
  quota: Limit,
  limit: number,
  used: number,
  reason: string,
): never {
  if (isNarrowed(access)) refuse(quota, null, null, 'the organization has used it up');
  refuse(quota, limit, used, reason);
}

export function refuse(quota: Limit, limit: number | null, used: number | null, reason: string): never {
  throw new ApiError('quota_exceeded', `${quota}: ${reason}`, { quota, limit, used });
}
