import type { Sql } from '../db/pool.js';
import { Conditions } from '../lib/conditions.js';
import { monthAfter, startOfMonth, type Instant } from '../lib/instant.js';
import { leafOf, type EventContent } from './canonical.js';
import { lengthOf, MOST_BYTES } from './length.js';
import { markFor } from './mark.js';
import { monthsWithEvents } from './months.js';
import type { EventActor } from './schema.js';

/** What lists and answers are made of. */
export type EventRow = Omit<EventContent, 'resource_id'>;

export interface NewEventRow extends EventContent {
  actor_kind: EventActor['kind'];
  actor_id: string;
  /** See canonical.ts. Null: it is made when the event is put into the log. */
  leaf: Buffer | null;
}

const COLUMNS = 'org_id, id, occurred_at, category, event_type, actor, payload';

export async function insertEvent(sql: Sql, event: NewEventRow): Promise<void> {
  const mark = await markFor(sql, event.leaf ?? leafOf(event));
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

/** Newest first, after `after`: `limit` at most, and fewer where they are long. `more`: there are others behind them. */
export async function listEvents(
  sql: Sql,
  orgId: string,
  filter: EventFilter,
  after: Place | undefined,
  limit: number,
): Promise<{ events: EventRow[]; more: boolean }> {
  const included = (name: FilterColumn) =>
    filter.columns.find(({ column }) => column === name)?.include ?? [];
  const asked = { types: included('event_type'), categories: included('category'), since: filter.since };
  const last = after?.[0] ?? filter.until;
  let before = last === undefined ? undefined : monthAfter(startOfMonth(last));
  const events: EventRow[] = [];
  let bytes = MOST_BYTES;
  // Most pages are filled by the newest month; who has few events in each needs many, and then not each by itself.
  for (let count = 1; ; count *= 4) {
    const months = await monthsWithEvents(sql, orgId, { ...asked, before }, count);
    if (months.length > 0) {
      const within = [months.at(-1)!, monthAfter(months[0]!)] as const;
      const room = { events: limit - events.length, bytes, first: events.length === 0 };
      for (const { fits, length, ...event } of await listWithin(sql, orgId, filter, within, after, room)) {
        if (!fits) return { events, more: true };
        events.push(event);
        bytes -= length;
      }
    }
    if (months.length < count) return { events, more: false };
    before = months.at(-1);
  }
}

/** The bytes are those of payloads. What is `first` on a page fits at any length. */
interface Room {
  events: number;
  bytes: number;
  first: boolean;
}

/** One more than there is room for, so that it shows whether there is one; what does not fit comes without its payload. */
async function listWithin(
  sql: Sql,
  orgId: string,
  filter: EventFilter,
  [from, to]: readonly [from: Instant, to: Instant],
  after: Place | undefined,
  room: Room,
): Promise<(EventRow & { fits: boolean; length: number })[]> {
  const where = new Conditions()
    .add((p) => `org_id = ${p(orgId)}`)
    .add((p) => `occurred_at >= ${p(from)}::timestamptz`)
    .add((p) => `occurred_at < ${p(to)}::timestamptz`);
  addFilter(where, filter);
  if (after) where.add((p) => `(occurred_at, id) < (${p(after[0])}::timestamptz, ${p(after[1])}::uuid)`);
  const [most, bytes] = [where.parameter(room.events), where.parameter(room.bytes)];
  // Behind what is too much already as it is stored nothing is unpacked to measure it.
  const { rows } = await sql.query<EventRow & { fits: boolean; length: number } & Record<string, unknown>>(
    `select ${COLUMNS.replace(/payload$/, 'case when fits then payload end as payload')}, length, fits
     from (
       select *, row_number() over newest <= ${most}::int
         and (sum(length) over newest <= ${bytes}::int
           or row_number() over newest = 1 and ${where.parameter(room.first)}::boolean) as fits
       from (
         select *, case when sum(pg_column_size(payload)) over newest - pg_column_size(payload) < ${MOST_BYTES}
           then ${lengthOf('payload')} else ${MOST_BYTES} end as length
         from (
           select ${COLUMNS} from events
           where ${where.text}
           order by occurred_at desc, id desc
           limit ${most}::int + 1
         ) found
         window newest as (order by occurred_at desc, id desc)
       ) measured
       window newest as (order by occurred_at desc, id desc)
     ) compared
     order by occurred_at desc, id desc`,
    where.values,
  );
  return rows;
}
