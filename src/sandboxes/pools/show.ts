import type { Caller } from '../../access/caller.js';
import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { readCursor } from '../../http/parameters.js';
import type { PageQuery } from '../../http/schema.js';
import { PAGE_LIMIT, toPage, type Page } from '../../lib/page.js';
import { presentPool, presentWithSandboxes } from './present.js';
import { getMembers, getPool, getPools } from './queries.js';
import type { PoolResponse, PoolWithSandboxes } from './schema.js';
import { refuseNarrowed } from './whole-organization.js';

export async function listPools(
  { pool, cursors }: Context,
  caller: Caller,
  { cursor, limit = PAGE_LIMIT.default }: PageQuery,
): Promise<Page<PoolResponse>> {
  refuseNarrowed(caller);
  const { orgId } = caller;
  const binding = ['pools'];
  const [after] = readCursor(cursors, orgId, binding, cursor) ?? [];
  return toPage(await getPools(pool, orgId, after, limit + 1), limit, presentPool, ({ name, id }) =>
    cursors.encode(orgId, binding, [name, id]),
  );
}

export async function showPool({ pool }: Context, caller: Caller, name: string): Promise<PoolWithSandboxes> {
  refuseNarrowed(caller);
  const found = await getPool(pool, caller.orgId, name);
  if (!found) throw new ApiError('pool_not_found');
  return presentWithSandboxes(found, await getMembers(pool, caller.orgId, found.id));
}
