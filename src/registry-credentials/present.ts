import { shortInstant } from '../lib/instant.js';
import type { CredentialRow } from './queries.js';
import type { RegistryCredentialResponse } from './schema.js';

export function presentCredential(row: CredentialRow): RegistryCredentialResponse {
  const { id, org_id, pattern, username, description, sealed, created_by } = row;
  return {
    id,
    org_id,
    pattern,
    username,
    description,
    has_password: sealed !== null,
    created_by,
    created_at: shortInstant(row.created_at),
    updated_at: shortInstant(row.updated_at),
  };
}
