import { shortInstant, type Instant } from '../lib/instant.js';
import type { ShownKeyRow } from './queries.js';
import type { KeyResponse } from './schema.js';

/** `at`: the current time, at which replaced secrets may have ended. */
export function presentKey(row: ShownKeyRow, at: Instant): KeyResponse {
  const { id, name, prefix, scopes, labels, cidrs, created_by, replaced_until } = row;
  return {
    id,
    name,
    prefix,
    scopes,
    labels,
    cidrs,
    created_by,
    created_at: shortInstant(row.created_at),
    expires_at: short(row.expires_at),
    last_used_at: short(row.last_used_at),
    rotated_at: short(row.rotated_at),
    previous_secret_until: short(replaced_until !== null && replaced_until > at ? replaced_until : null),
    revoked_at: short(row.revoked_at),
  };
}

function short(instant: Instant | null): string | null {
  return instant && shortInstant(instant);
}
