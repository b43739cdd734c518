import type { Caller } from '../../access/caller.js';
import { readerOf } from '../../access/reader.js';
import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { readCursor } from '../../http/parameters.js';
import type { PageQuery } from '../../http/schema.js';
import { PAGE_LIMIT, toPage, type Page } from '../../lib/page.js';
import { presentFork, presentWithCopies } from './present.js';
import { findFork, listCopies, listForks } from './queries.js';
import type { ForkOperation, ForkSummary } from './schema.js';

export async function listForkOperations(
  { pool, cursors }: Context,
  caller: Caller,
  { cursor, limit = PAGE_LIMIT.default }: PageQuery,
): Promise<Page<ForkSummary>> {
  const { orgId } = caller;
  const binding = ['fork-operations'];
  const after = readCursor(cursors, orgId, binding, cursor) as [string, string] | undefined;
  const rows = await listForks(pool, readerOf(caller), { after, limit: limit + 1 });
  return toPage(rows, limit, presentFork, ({ created_at, id }) =>
    cursors.encode(orgId, binding, [created_at, id]),
  );
}

/** Throws `fork_operation_not_found`. */
export async function showForkOperation(
  { pool }: Context,
  caller: Caller,
  id: string,
): Promise<ForkOperation> {
  const reader = readerOf(caller);
  const row = await findFork(pool, reader, id);
  if (!row) throw new ApiError('fork_operation_not_found');
  return presentWithCopies(row, await listCopies(pool, reader, id));
}
