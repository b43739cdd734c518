import type { Context } from '../context.js';
import type { Caller } from '../http/auth.js';
import { badParameter } from '../http/errors.js';
import { readCursor, readLabels, readSince, readUntil } from '../http/parameters.js';
import { toPage, type Page } from '../lib/page.js';
import { listSandboxes, type SandboxFilter, type Sort } from './list-query.js';
import { presentSandbox } from './present.js';
import type { SandboxResponse, SandboxStatus } from './schema.js';

export interface ListSandboxesQuery {
  labels?: string;
  status?: SandboxStatus[];
  name_prefix?: string;
  created_after?: string;
  created_before?: string;
  sort?: Sort;
  cursor?: string;
  limit?: number;
}

const MOST_LABELS = 16;

/** A page of an organization's sandboxes. */
export async function list(
  ctx: Context,
  { orgId, access }: Caller,
  query: ListSandboxesQuery,
): Promise<Page<SandboxResponse>> {
  const { sort = '-created_at', limit = 20 } = query;
  const labels = Object.entries(readLabels('labels', query.labels)).toSorted(([a], [b]) => (a < b ? -1 : 1));
  if (labels.length > MOST_LABELS) throw badParameter('labels', `labels takes at most ${MOST_LABELS} labels`);
  const filter: SandboxFilter = {
    // Both those that were asked for and those that the key is narrowed to: of two that contradict each other, none match.
    labels: [...labels, ...Object.entries(access.labels)],
    statuses: [...new Set(query.status)].toSorted(),
    namePrefix: query.name_prefix,
    // Exclusive bounds: what is below a microsecond rounds away from what lies between them.
    createdAfter: readUntil('created_after', query.created_after),
    createdBefore: readSince('created_before', query.created_before),
  };
  const binding = ['sandboxes', sort, filter];
  const after = readCursor(ctx.cursors, orgId, binding, query.cursor) as [string, string] | undefined;
  const rows = await listSandboxes(ctx.pool, orgId, filter, sort, after, limit + 1);
  return toPage(rows, limit, presentSandbox, (row) =>
    ctx.cursors.encode(orgId, binding, [sort === 'name' ? row.name : row.created_at, row.id]),
  );
}
