import type { Context } from '../../context.js';
import type { Sql } from '../../db/pool.js';
import { readCursor } from '../../http/parameters.js';
import {
  instantFromMicros,
  instantFromPostgres,
  LAST_INSTANT,
  microsOf,
  monthAfter,
  startOfMonth,
  type Instant,
} from '../../lib/instant.js';
import { pageText } from '../../lib/page.js';
import type { EventFilter } from '../events/queries.js';
import { eventText, type EventTexts } from './event-text.js';
import type { FilterQuery } from './filter.js';
import { readKnownFilter } from './known-filter.js';
import { readLongPage } from './long-page-query.js';
import { FIRST_ID, isAbout, isShort, readPage, type PageAsked, type Place } from './page-query.js';
import { windowAt } from './window.js';

export interface ListEventsQuery extends FilterQuery {
  cursor?: string;
  limit?: number;
}

/** A page of an organization's audit events, newest first, as JSON text. */
export async function list(ctx: Context, orgId: string, query: ListEventsQuery): Promise<string> {
  const { limit = 20 } = query;
  const filter = await readKnownFilter(ctx.pool, orgId, query);
  const binding = ['events', filter];
  const after = readCursor(ctx.cursors, orgId, binding, query.cursor) as [string, string] | undefined;
  const { found, fitting } = await listEvents(ctx, orgId, filter, after, limit);
  return pageText(
    found,
    fitting,
    (event) => eventText(orgId, event),
    (event) => ctx.cursors.encode(orgId, binding, placeOf(event)),
  );
}

type Sources = Pick<Context, 'pool' | 'reads' | 'now'>;

/**
 * Newest first, after `after`, with one too many where there are more. `fitting`: how many of them are the page, `limit` at most and
 * fewer where they are long.
 */
export async function listEvents(
  ctx: Sources,
  orgId: string,
  filter: EventFilter,
  after: Place | undefined,
  limit: number,
): Promise<{ found: EventTexts[]; fitting: number }> {
  // One more, so that it shows whether there is one.
  const asked = { orgId, filter, before: after ?? placeBehind(filter.until), count: limit + 1 };
  // Of all months by connections that stay, as well: one that is new plans it for each five times, which takes ten times as long.
  const sql = isShort(filter) ? ctx.reads : ctx.pool;
  const page = (await readNewest(sql, ctx.now(), asked)) ?? (await readPage(sql, asked));
  const found = page.every(isWhole) ? page : await readLongOnes(ctx.pool, asked, page);
  const whole = found.findIndex((event) => !isWhole(event));
  return { found, fitting: whole === -1 ? Math.min(limit, found.length) : Math.min(limit, whole) };
}

/**
 * What was asked for, by one statement that opens one month or two, when these have all of it: most pages are filled by the newest
 * months. Undefined: others have to be looked at.
 */
async function readNewest(sql: Sql, now: Instant, asked: PageAsked): Promise<EventTexts[] | undefined> {
  const { filter, before, count } = asked;
  const { since } = filter;
  const recent = windowAt(now);
  // Of the months of long ago there are too many to have a statement for each.
  const isRecent = before[0] >= recent.from;
  const window = isRecent ? recent : windowAt(before[0]);
  const isAll = since !== undefined && since >= window.from;
  // What happens to one thing in two months seldom fills a page.
  if (!isAll && isAbout(filter)) return undefined;
  const last = before[0] >= window.to;
  const months = { ...window, last, isRecent };
  const found = await readPage(sql, { ...asked, before: last ? [window.to, FIRST_ID] : before, months });
  // Without any it may be that there are some of later months.
  const isSure = !last || found.length > 0;
  return found.length === count || (isAll && isSure) ? found : undefined;
}

function readLongOnes(sql: Sql, asked: PageAsked, found: EventTexts[]): Promise<EventTexts[]> {
  const monthOf = (event: EventTexts) => startOfMonth(instantFromPostgres(event[1]));
  return readLongPage(sql, asked, { from: monthOf(found.at(-1)!), to: monthAfter(monthOf(found[0]!)) });
}

/** Is its payload there? */
function isWhole(event: EventTexts): boolean {
  return event[5] !== null;
}

function placeOf([id, occurredAt]: EventTexts): Place {
  return [instantFromPostgres(occurredAt), id];
}

/** What is before it happened at `until` or earlier. */
function placeBehind(until: Instant | undefined): Place {
  const isLast = until === undefined || until === LAST_INSTANT;
  return [isLast ? 'infinity' : instantFromMicros(microsOf(until) + 1n), FIRST_ID];
}
