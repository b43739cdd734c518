import type { KeyRow } from '../access/key-queries.js';
import { shortInstant, type Instant } from '../lib/instant.js';
import type { KeyResponse } from './schema.js';

export function presentKey(row: KeyRow): KeyResponse {
  const { id, name, prefix, scopes, labels, cidrs, created_by } = row;
  return {
    ...{ id, name, prefix, scopes, labels, cidrs, created_by },
    created_at: shortInstant(row.created_at),
    expires_at: short(row.expires_at),
    last_used_at: short(row.last_used_at),
    rotated_at: short(row.rotated_at),
    revoked_at: short(row.revoked_at),
  };
}

function short(instant: Instant | null): string | null {
  return instant && shortInstant(instant);
}
