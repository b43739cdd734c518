import type { Sql } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import type { CreateSandboxRequest } from '../spec/specification.js';
import { patternsOf } from './pattern.js';
import { getCredential } from './queries.js';

/**
 * Refuses a request that names a stored credential which the organization does not have, or one whose pattern does not
 * match the image: its registry would get the password. Callers who create sandboxes may not read passwords.
 */
export async function checkSelection(
  sql: Sql,
  orgId: string,
  { registry, image }: Pick<CreateSandboxRequest, 'registry' | 'image'>,
): Promise<void> {
  if (registry?.mode !== 'specific') return;
  const row = await getCredential(sql, orgId, registry.credential_id);
  if (!row) refuse(`the organization has no registry credential ${registry.credential_id}`);
  // Other images are disks of the organization. They are not pulled.
  if (image.type !== 'oci' || patternsOf(image.reference).includes(row.pattern)) return;
  refuse(`the credential is for images of ${row.pattern}, and the image is ${image.reference}`);
}

function refuse(message: string): never {
  const field = 'registry.credential_id';
  throw new ApiError('invalid_sandbox_config', `${field}: ${message}`, { field });
}
