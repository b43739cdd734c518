import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { readCursor } from '../../http/parameters.js';
import type { PageQuery } from '../../http/schema.js';
import { shortInstant } from '../../lib/instant.js';
import { PAGE_LIMIT, toPage, type Page } from '../../lib/page.js';
import { getWorkerOf, type SandboxKey } from '../queries.js';
import { getSessions, type ListedSession, type SessionDetails } from './queries.js';
import type { SandboxSession } from './schema.js';

/** The open sessions of a sandbox in any status, the oldest first. */
export async function listSessions(
  ctx: Context,
  orgId: string,
  key: SandboxKey,
  { cursor, limit = PAGE_LIMIT.default }: PageQuery,
): Promise<Page<SandboxSession>> {
  const sandbox = await getWorkerOf(ctx.pool, orgId, key);
  if (!sandbox) throw new ApiError('sandbox_not_found');
  const binding = ['sessions', sandbox.id];
  const [after] = readCursor(ctx.cursors, orgId, binding, cursor) ?? [];
  const rows = await getSessions(ctx.pool, orgId, sandbox.id, { after, limit: limit + 1 });
  return toPage(
    rows,
    limit,
    (row) => present(sandbox.id, row),
    ({ id }) => ctx.cursors.encode(orgId, binding, [id]),
  );
}

function present(sandboxId: string, row: ListedSession): SandboxSession {
  const { id, actor, details, opened_at, end_requested_at } = row;
  // Sessions of another release may lack details.
  const known: Pick<SessionDetails, 'kind'> & Partial<SessionDetails> = details;
  const { kind, user = null, program = null, argument_count = 0 } = known;
  return {
    id,
    sandbox_id: sandboxId,
    kind,
    actor,
    user,
    program,
    argument_count,
    opened_at: shortInstant(opened_at),
    end_requested_at: end_requested_at && shortInstant(end_requested_at),
  };
}
