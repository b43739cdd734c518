import type { Context } from '../../context.js';
import type { Sql } from '../../db/pool.js';
import { readCursor } from '../../http/parameters.js';
import type { PageQuery } from '../../http/schema.js';
import {
  instantFromMicros,
  instantFromPostgres,
  LAST_INSTANT,
  microsOf,
  monthAfter,
  startOfMonth,
  type Instant,
} from '../../lib/instant.js';
import { PAGE_LIMIT, pageText } from '../../lib/page.js';
import type { EventFilter } from '../events/queries.js';
import type { EventRenderer, EventTextRow } from './event-text.js';
import type { FilterQuery } from './filter.js';
import { readKnownFilter } from './known-event-types.js';
import { readLongPage } from './long-page-queries.js';
import { recentMonths } from './month-window.js';
import {
  FIRST_ID,
  isAboutResource,
  isShortRead,
  readPage,
  type PageRequest,
  type SortKey,
} from './page-queries.js';

export type ListEventsQuery = FilterQuery & PageQuery;

export async function list(
  ctx: Context,
  renderer: EventRenderer,
  orgId: string,
  query: ListEventsQuery,
): Promise<string> {
  const { limit = PAGE_LIMIT.default } = query;
  const filter = await readKnownFilter(ctx.pool, orgId, query);
  const binding = ['events', filter];
  const position = readCursor(ctx.cursors, orgId, binding, query.cursor);
  const { rows, pageSize } = await listEvents(ctx, orgId, filter, position && sortKeyAt(position), limit);
  return pageText(
    rows,
    pageSize,
    (event) => renderer.render(orgId, event),
    ({ occurred_at, id }) => ctx.cursors.encode(orgId, binding, [instantFromPostgres(occurred_at), id]),
  );
}

type Sources = Pick<Context, 'pool' | 'reads' | 'now'>;

/** Returns one row too many when there are more events. `pageSize`: fewer than `limit` when payloads are long. */
export async function listEvents(
  ctx: Sources,
  orgId: string,
  filter: EventFilter,
  before: SortKey | undefined,
  limit: number,
): Promise<{ rows: EventTextRow[]; pageSize: number }> {
  const request = { orgId, filter, before: before ?? sortKeyAfter(filter.until), count: limit + 1 };
  // Lasting connections serve pages of all months too. A new connection plans the statement five times, each ten times
  // as slow.
  const sql = isShortRead(filter) ? ctx.reads : ctx.pool;
  const page = (await readNewest(sql, ctx.now(), request)) ?? (await readPage(sql, request));
  const rows = page.every(isWhole) ? page : await readPayloads(ctx.pool, request, page);
  const whole = rows.findIndex((event) => !isWhole(event));
  return { rows, pageSize: whole === -1 ? Math.min(limit, rows.length) : Math.min(limit, whole) };
}

/** Reads one or two months, which fill most pages. Undefined: other months may have events of the page too. */
async function readNewest(sql: Sql, now: Instant, request: PageRequest): Promise<EventTextRow[] | undefined> {
  const { filter, before, count } = request;
  const { since } = filter;
  const recent = recentMonths(now);
  // Old months are too many to prepare a statement for each.
  const isRecent = before.occurredAt >= recent.from;
  const window = isRecent ? recent : recentMonths(before.occurredAt);
  const coversFilter = since !== undefined && since >= window.from;
  if (!coversFilter && isAboutResource(filter)) return undefined;
  const last = before.occurredAt >= window.to;
  const start = last ? { occurredAt: window.to, id: FIRST_ID } : before;
  const rows = await readPage(sql, { ...request, before: start, months: { ...window, last, isRecent } });
  // `last` returns no rows also when later months have events.
  const isConclusive = !last || rows.length > 0;
  return rows.length === count || (coversFilter && isConclusive) ? rows : undefined;
}

function readPayloads(sql: Sql, request: PageRequest, rows: EventTextRow[]): Promise<EventTextRow[]> {
  const monthOf = ({ occurred_at }: EventTextRow) => startOfMonth(instantFromPostgres(occurred_at));
  const [newest, oldest] = [rows.at(0)!, rows.at(-1)!];
  return readLongPage(sql, request, { from: monthOf(oldest), to: monthAfter(monthOf(newest)) });
}

function isWhole({ payload }: EventTextRow): boolean {
  return payload !== null;
}

function sortKeyAt([occurredAt, id]: readonly string[]): SortKey {
  return { occurredAt: occurredAt!, id: id! };
}

/** Sorts directly after every event at `until` or earlier. */
function sortKeyAfter(until: Instant | undefined): SortKey {
  const isLast = until === undefined || until === LAST_INSTANT;
  return { occurredAt: isLast ? 'infinity' : instantFromMicros(microsOf(until) + 1n), id: FIRST_ID };
}
