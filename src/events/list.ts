import type { Context } from '../context.js';
import { readCursor } from '../http/parameters.js';
import { shortInstant } from '../lib/instant.js';
import { makePage, type Page } from '../lib/page.js';
import { readEventFilter, type FilterQuery } from './filter.js';
import { listEvents, type EventRow } from './queries.js';
import type { EventResponse } from './schema.js';

export interface ListEventsQuery extends FilterQuery {
  cursor?: string;
  limit?: number;
}

/** A page of an organization's audit events, newest first. */
export async function list(
  ctx: Context,
  orgId: string,
  query: ListEventsQuery,
): Promise<Page<EventResponse>> {
  const { limit = 20 } = query;
  const filter = readEventFilter(query);
  const binding = ['events', filter];
  const after = readCursor(ctx.cursors, orgId, binding, query.cursor) as [string, string] | undefined;
  const { events, more } = await listEvents(ctx.pool, orgId, filter, after, limit);
  return makePage(events, more, presentEvent, ({ occurred_at, id }) =>
    ctx.cursors.encode(orgId, binding, [occurred_at, id]),
  );
}

export function presentEvent({ occurred_at, ...row }: EventRow): EventResponse {
  const { id, org_id, category, event_type, actor, payload } = row;
  return { id, org_id, timestamp: shortInstant(occurred_at), category, event_type, actor, payload };
}
