import type { Context } from '../context.js';
import { readCursor } from '../http/parameters.js';
import type { PageQuery } from '../http/schema.js';
import { PAGE_LIMIT, toPage, type Page } from '../lib/page.js';
import { presentCredential } from './present.js';
import { getCredentials } from './queries.js';
import type { RegistryCredentialResponse } from './schema.js';

export async function listCredentials(
  ctx: Context,
  orgId: string,
  { cursor, limit = PAGE_LIMIT.default }: PageQuery,
): Promise<Page<RegistryCredentialResponse>> {
  const binding = ['registry credentials'];
  const after = readCursor(ctx.cursors, orgId, binding, cursor) as [string, string] | undefined;
  return toPage(
    await getCredentials(ctx.pool, orgId, after, limit + 1),
    limit,
    presentCredential,
    ({ created_at, id }) => ctx.cursors.encode(orgId, binding, [created_at, id]),
  );
}
