import type { Caller } from '../../access/caller.js';
import type { Context } from '../../context.js';
import type { Sql } from '../../db/pool.js';
import { badParameter } from '../../http/errors.js';
import type { PageQuery } from '../../http/schema.js';
import { readCursor, readLabels, readSince, readUntil } from '../../http/parameters.js';
import type { Position } from '../../lib/cursor.js';
import { PAGE_LIMIT, pageText } from '../../lib/page.js';
import { withLongSpecs } from '../admission/long-specs.js';
import {
  canMerge,
  COUNTED,
  countLabels,
  endOfSearch,
  getSandboxPage,
  mergingLabels,
  passesOver,
  positionOf,
  searchingNames,
  type SandboxFilter,
  type SandboxPage,
  type Sort,
} from './list-queries.js';
import { sandboxText } from '../row.js';
import type { SandboxStatus, StopReason } from '../../spec/statuses.js';

export interface ListSandboxesQuery extends PageQuery {
  labels?: string;
  status?: SandboxStatus[];
  stop_reason?: StopReason[];
  name_prefix?: string;
  name_contains?: string;
  created_after?: string;
  created_before?: string;
  sort?: Sort;
}

const MOST_LABELS = 16;
/** A longer page ends early, with a cursor. */
export const MAX_PAGE_BYTES = 1024 * 1024;

export async function listSandboxes(
  ctx: Context,
  { orgId, access }: Caller,
  query: ListSandboxesQuery,
): Promise<string> {
  const { sort = '-created_at', limit = PAGE_LIMIT.default } = query;
  const labels = Object.entries(readLabels('labels', query.labels)).toSorted(([a], [b]) => (a < b ? -1 : 1));
  if (labels.length > MOST_LABELS) throw badParameter('labels', `labels takes at most ${MOST_LABELS} labels`);
  const filter: SandboxFilter = {
    // Contradicting labels of the request and of the key match no sandbox.
    labels: [...labels, ...Object.entries(access.labels)],
    statuses: [...new Set(query.status)].toSorted(),
    stopReasons: query.stop_reason && [...new Set(query.stop_reason)].toSorted(),
    namePrefix: query.name_prefix,
    nameContains: query.name_contains,
    // The bounds are exclusive, so rounding to microseconds loses nothing.
    createdAfter: readUntil('created_after', query.created_after),
    createdBefore: readSince('created_before', query.created_before),
  };
  const binding = ['sandboxes', sort, filter];
  const after = readCursor(ctx.cursors, orgId, binding, query.cursor);
  const { labels: ordered, sideBySide, quick } = await wayOf(ctx, orgId, filter, sort);
  const page: SandboxPage = {
    filter: { ...filter, labels: ordered },
    sort,
    after,
    limit: limit + 1,
    sideBySide,
  };
  const { until, found } =
    filter.nameContains === undefined
      ? { until: undefined, found: await readPage(ctx, orgId, page, quick) }
      : await searchingNames(ctx.pool, (tx) => searchPage(tx, orgId, page));
  const { rows, pageSize } = await withLongSpecs(ctx.pool, orgId, found, MAX_PAGE_BYTES);
  const cursorOf = (position: Position) => ctx.cursors.encode(orgId, binding, position);
  return pageText(
    rows,
    Math.min(limit, pageSize),
    (row) => sandboxText(row, access),
    (row) => cursorOf(positionOf(row, sort)),
    { maxLength: MAX_PAGE_BYTES, restCursor: until && cursorOf(until) },
  );
}

async function readPage({ pool, reads }: Context, orgId: string, page: SandboxPage, quick: boolean) {
  const read = (sql: Sql) => getSandboxPage(sql, orgId, page);
  if (quick) return read(reads);
  return page.sideBySide ? mergingLabels(pool, read) : read(pool);
}

async function searchPage(sql: Sql, orgId: string, page: SandboxPage) {
  const end = await endOfSearch(sql, orgId, page);
  const until = end && positionOf(end, page.sort);
  return { until, found: await getSandboxPage(sql, orgId, { ...page, until }) };
}

/**
 * The rarest label comes first. Without a rare one the query merges all of them (`sideBySide`). Not `quick`: the query
 * may read far more rows than a page, so it uses the pool.
 */
async function wayOf(
  { reads }: Context,
  orgId: string,
  filter: SandboxFilter,
  sort: Sort,
): Promise<{ labels: SandboxFilter['labels']; sideBySide: boolean; quick: boolean }> {
  const { labels, createdAfter, createdBefore } = filter;
  // Labels and times follow the order of creation, not that of names.
  const crosses = labels.length > 0 || createdAfter !== undefined || createdBefore !== undefined;
  const isScan = !passesOver(filter) && !(crosses && sort === 'name');
  if (labels.length < 2) return { labels, sideBySide: false, quick: isScan };
  const counts = await countLabels(reads, orgId, labels);
  const byCount = labels.map((label, index) => ({ label, count: counts[index]! }));
  byCount.sort((a, b) => a.count - b.count);
  const isRare = byCount[0]!.count < COUNTED;
  return {
    labels: byCount.map(({ label }) => label),
    sideBySide: !isRare && canMerge(filter, sort),
    quick: isRare && isScan,
  };
}
