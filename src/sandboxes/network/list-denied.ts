import type { Context } from '../../context.js';
import { DENIED_LISTS, type ListedRefusal } from '../../engine/network-record/denied-lists.js';
import { ApiError } from '../../http/errors.js';
import { readCursor } from '../../http/parameters.js';
import type { PageQuery } from '../../http/schema.js';
import { PAGE_LIMIT, toPage, type Page } from '../../lib/page.js';
import { getWorkerOf, type SandboxKey } from '../queries.js';
import { dateTimeOf } from './events.js';
import type { DeniedConnection } from './schema.js';

/** The latest refusals of a sandbox in any status, the newest first, from the memory of this process. */
export async function listDenied(
  ctx: Context,
  orgId: string,
  key: SandboxKey,
  { cursor, limit = PAGE_LIMIT.default }: PageQuery,
): Promise<Page<DeniedConnection>> {
  const sandbox = await getWorkerOf(ctx.pool, orgId, key);
  if (!sandbox) throw new ApiError('sandbox_not_found');
  const binding = ['network denied', sandbox.id];
  const [after] = readCursor(ctx.cursors, orgId, binding, cursor) ?? [];
  const before = after === undefined ? undefined : Number(after);
  const most = Math.min(limit + 1, DENIED_LISTS.mostOfSandbox);
  const refusals = ctx.network.deniedLists.list(sandbox.id, { before, limit: most });
  return toPage(refusals, limit, present, ({ position }) =>
    ctx.cursors.encode(orgId, binding, [String(position)]),
  );
}

function present(refusal: ListedRefusal): DeniedConnection {
  const { kind, protocol, name, address, port, rule, reason, secret, count, firstAt, lastAt } = refusal;
  return {
    kind,
    protocol,
    name,
    address,
    port,
    rule: rule === null ? null : String(rule),
    reason,
    secret,
    count,
    first_at: dateTimeOf(firstAt),
    last_at: dateTimeOf(lastAt),
  };
}
