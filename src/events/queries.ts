import type { Sql } from '../db/pool.js';
import { Conditions } from '../lib/conditions.js';
import { monthAfter, startOfMonth, type Instant } from '../lib/instant.js';
import { leafOf } from './canonical.js';
import { markFor } from './mark.js';
import { monthsWithEvents } from './months.js';
import type { EventActor } from './schema.js';

export interface EventRow {
  org_id: string;
  id: string;
  occurred_at: Instant;
  category: string;
  event_type: string;
  actor: EventActor;
  payload: unknown;
}

export interface NewEventRow extends EventRow {
  actor_kind: EventActor['kind'];
  actor_id: string;
  resource_id: string | null;
  /** See canonical.ts. Null: it is made when the event is put into the log. */
  leaf: Buffer | null;
}

const COLUMNS = 'org_id, id, occurred_at, category, event_type, actor, payload';

export async function insertEvent(sql: Sql, event: NewEventRow): Promise<void> {
  const mark = markFor(sql, event.leaf ?? leafOf(event));
  await sql.query(
    `insert into events (${COLUMNS}, actor_kind, actor_id, resource_id, leaf, mark)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
    [
      ...[event.org_id, event.id, event.occurred_at, event.category, event.event_type],
      ...[JSON.stringify(event.actor), JSON.stringify(event.payload)],
      ...[event.actor_kind, event.actor_id, event.resource_id, event.leaf, mark],
    ],
  );
}

export async function getEvent(sql: Sql, orgId: string, id: string): Promise<EventRow | undefined> {
  const { rows: times } = await sql.query<{ occurred_at: Instant }>(
    `select occurred_at from event_log where org_id = $1 and event_id = $2
     union all
     select occurred_at from unsealed_events where org_id = $1 and event_id = $2
     limit 1`,
    [orgId, id],
  );
  if (!times[0]) return undefined;
  const { rows } = await sql.query<EventRow & Record<string, unknown>>(
    `select ${COLUMNS} from events where org_id = $1 and occurred_at = $2 and id = $3`,
    [orgId, times[0].occurred_at, id],
  );
  return rows[0];
}

/** The columns that a list can be filtered by, with their types. */
const FILTER_COLUMNS = {
  event_type: 'text',
  category: 'text',
  actor_kind: 'text',
  actor_id: 'text',
  resource_id: 'uuid',
} as const;
export type FilterColumn = keyof typeof FILTER_COLUMNS;

export interface EventFilter {
  /** Any of `include` (when there are some), none of `exclude`. */
  columns: { column: FilterColumn; include: string[]; exclude: string[] }[];
  /** Both inclusive. */
  since: Instant | undefined;
  until: Instant | undefined;
}

/** Adds what a filter asks of the columns of `events`, which the query may call `alias`. */
export function addFilter(
  where: Conditions,
  { columns, since, until }: EventFilter,
  alias: 'events' | 'e' = 'events',
): Conditions {
  for (const { column, include, exclude } of columns) {
    const type = FILTER_COLUMNS[column];
    if (include.length > 0) where.add((p) => `${alias}.${column} = any (${p(include)}::${type}[])`);
    // An event without a resource is not about the one that is excluded.
    if (exclude.length > 0)
      where.add((p) => `(${alias}.${column} = any (${p(exclude)}::${type}[])) is not true`);
  }
  if (since !== undefined) where.add((p) => `${alias}.occurred_at >= ${p(since)}::timestamptz`);
  if (until !== undefined) where.add((p) => `${alias}.occurred_at <= ${p(until)}::timestamptz`);
  return where;
}

type Place = readonly [occurredAt: Instant, id: string];

/** Newest first, `limit` at most, after `after`. */
export async function listEvents(
  sql: Sql,
  orgId: string,
  filter: EventFilter,
  after: Place | undefined,
  limit: number,
): Promise<EventRow[]> {
  const included = (name: FilterColumn) =>
    filter.columns.find(({ column }) => column === name)?.include ?? [];
  const asked = { types: included('event_type'), categories: included('category'), since: filter.since };
  const last = after?.[0] ?? filter.until;
  let before = last === undefined ? undefined : monthAfter(startOfMonth(last));
  const found: EventRow[] = [];
  // Most pages are filled by the newest month; who has few events in each needs many, and then not each by itself.
  for (let count = 1; ; count *= 4) {
    const months = await monthsWithEvents(sql, orgId, { ...asked, before }, count);
    if (months.length > 0) {
      const within = [months.at(-1)!, monthAfter(months[0]!)] as const;
      found.push(...(await listWithin(sql, orgId, filter, within, after, limit - found.length)));
    }
    if (found.length === limit || months.length < count) return found;
    before = months.at(-1);
  }
}

async function listWithin(
  sql: Sql,
  orgId: string,
  filter: EventFilter,
  [from, to]: readonly [from: Instant, to: Instant],
  after: Place | undefined,
  limit: number,
): Promise<EventRow[]> {
  const where = new Conditions()
    .add((p) => `org_id = ${p(orgId)}`)
    .add((p) => `occurred_at >= ${p(from)}::timestamptz`)
    .add((p) => `occurred_at < ${p(to)}::timestamptz`);
  addFilter(where, filter);
  if (after) where.add((p) => `(occurred_at, id) < (${p(after[0])}::timestamptz, ${p(after[1])}::uuid)`);
  const { rows } = await sql.query<EventRow & Record<string, unknown>>(
    `select ${COLUMNS} from events
     where ${where.text}
     order by occurred_at desc, id desc
     limit ${where.parameter(limit)}`,
    where.values,
  );
  return rows;
}
