import { type KeyRow } from '../access/key-queries.js';
import { hashOf, makeKey, prefixOf } from '../access/key-secret.js';
import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { EventSql } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { addMillis, shortInstant, type Instant } from '../lib/instant.js';
import {
  deleteReplacedSecrets,
  keepReplacedSecret,
  replaceSecret,
  shortenReplacedSecrets,
  type ShownKeyRow,
} from './queries.js';

/** How long the replaced secret still works, in seconds. */
export const LONGEST_OVERLAP_SECS = 30 * 24 * 3600;
export const DEFAULT_OVERLAP_SECS = 3600;

/**
 * Gives a key a new secret. The transaction holds its row. The previous secret, and earlier ones that still work, work
 * for another `overlapSecs` at most. Throws ApiError when the key is revoked or has expired.
 */
export async function rotateLocked(
  tx: EventSql,
  key: KeyRow,
  actor: EventActor,
  overlapSecs: number,
  at: Instant,
): Promise<{ row: ShownKeyRow; key: string }> {
  const { org_id: orgId, id, name } = key;
  if (key.member_id !== null) throw new ApiError('token_not_rotated');
  const ended = key.revoked_at !== null ? 'revoked' : undefined;
  const status = ended ?? (key.expires_at !== null && key.expires_at <= at ? 'expired' : undefined);
  if (status !== undefined) {
    throw new ApiError('invalid_state_transition', `the key is ${status}: make another`, {
      status,
      operation: 'rotate',
    });
  }
  const until = addMillis(at, overlapSecs * 1000);
  if (overlapSecs === 0) {
    await deleteReplacedSecrets(tx, orgId, id);
  } else {
    await shortenReplacedSecrets(tx, orgId, id, until);
    await keepReplacedSecret(tx, orgId, id, until);
  }
  const secret = makeKey();
  const row = await replaceSecret(tx, orgId, id, { prefix: prefixOf(secret), hash: hashOf(secret), at });
  await recordEvent(tx, {
    orgId,
    type: 'api_key_rotated',
    actor,
    resourceId: id,
    at,
    payload: {
      api_key_id: id,
      name,
      prefix: row.prefix,
      previous_prefix: key.prefix,
      previous_until: shortInstant(until),
    },
  });
  return { row: { ...row, replaced_until: overlapSecs === 0 ? null : until }, key: secret };
}
