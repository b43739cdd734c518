import type { Sql } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import type { CreateSandboxRequest } from '../spec/specification.js';
import { getCredential } from './queries.js';

/** Refuses a request that names a stored credential which the organization does not have. */
export async function checkSelection(
  sql: Sql,
  orgId: string,
  { registry }: Pick<CreateSandboxRequest, 'registry'>,
): Promise<void> {
  if (registry?.mode !== 'specific') return;
  if (await getCredential(sql, orgId, registry.credential_id)) return;
  throw new ApiError(
    'invalid_sandbox_config',
    `registry.credential_id: the organization has no registry credential ${registry.credential_id}`,
    { field: 'registry.credential_id' },
  );
}
