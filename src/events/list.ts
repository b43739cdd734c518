import type { Context } from '../context.js';
import { badParameter } from '../http/errors.js';
import { readCursor, readSince, readUntil } from '../http/parameters.js';
import { shortInstant } from '../lib/instant.js';
import { toPage, type Page } from '../lib/page.js';
import { listEvents, type EventFilter, type EventRow, type FilterColumn } from './queries.js';
import type { EventResponse } from './schema.js';

export interface ListEventsQuery extends Partial<Record<FilterColumn, string[]>> {
  since?: string;
  until?: string;
  cursor?: string;
  limit?: number;
}

/** A page of an organization's audit events, newest first. */
export async function list(
  ctx: Context,
  orgId: string,
  query: ListEventsQuery,
): Promise<Page<EventResponse>> {
  const { event_type, category, actor_kind, actor_id, resource_id, limit = 20 } = query;
  const filter: EventFilter = {
    columns: Object.entries({ event_type, category, actor_kind, actor_id, resource_id }).flatMap(
      ([column, values]) => (values ? [readFilter(column as FilterColumn, values)] : []),
    ),
    since: readSince('since', query.since),
    until: readUntil('until', query.until),
  };
  if (filter.since !== undefined && filter.until !== undefined && filter.since > filter.until) {
    throw badParameter('until', 'until must not be before since');
  }
  const binding = ['events', filter];
  const after = readCursor(ctx.cursors, orgId, binding, query.cursor) as [string, string] | undefined;
  const rows = await listEvents(ctx.pool, orgId, filter, after, limit + 1);
  return toPage(rows, limit, presentEvent, ({ occurred_at, id }) =>
    ctx.cursors.encode(orgId, binding, [occurred_at, id]),
  );
}

export function presentEvent({ occurred_at, ...row }: EventRow): EventResponse {
  const { id, org_id, category, event_type, actor, payload } = row;
  return { id, org_id, timestamp: shortInstant(occurred_at), category, event_type, actor, payload };
}

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** Values that start with `!` exclude. */
function readFilter(column: FilterColumn, values: string[]): EventFilter['columns'][number] {
  const include: string[] = [];
  const exclude: string[] = [];
  for (const value of values) {
    const word = value.startsWith('!') ? value.slice(1) : value;
    if (word === '') throw badParameter(column, `${column} must not be empty`);
    if (column === 'resource_id' && !UUID.test(word)) {
      throw badParameter(column, `resource_id must be a UUID, or ! and a UUID to exclude it`);
    }
    (value.startsWith('!') ? exclude : include).push(word);
  }
  return { column, include, exclude };
}
