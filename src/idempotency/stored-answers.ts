import type { Context } from '../context.js';
import { ApiError } from '../http/errors.js';
import { sumOfLongAnswers } from './queries.js';

/**
 * The stored answers of one organization, which stay for a day. The output of a command has up to 8 MiB, and a request
 * that changes nothing stores a sandbox of 64 KiB. Each write stores as much as the free bytes anyway, in its row and
 * its event.
 */
export const STORED_ANSWERS = { freeBytes: 4 * 1024, maxBytes: 1024 ** 3 };

const RETRY_AFTER_SECS = 60;

export async function hasNoRoom(
  { storedAnswers, pool }: Pick<Context, 'storedAnswers' | 'pool'>,
  orgId: string,
): Promise<boolean> {
  return storedAnswers.isFull(orgId, async (freeBytes) => sumOfLongAnswers(pool, orgId, freeBytes));
}

export function refuseToStore(): never {
  throw new ApiError(
    'rate_limited',
    'the organization has too many long answers stored for Idempotency-Key: send the request without the header, or wait until older ones expire',
    null,
    { headers: { 'retry-after': String(RETRY_AFTER_SECS) } },
  );
}
