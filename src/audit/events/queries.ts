import type { Sql } from '../../db/pool.js';
import type { Conditions } from '../../lib/conditions.js';
import type { Instant } from '../../lib/instant.js';
import { leafOf, type EventContent } from './content.js';
import { markFor } from './mark.js';
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

/** Several, with one statement. */
export async function insertEvents(sql: Sql, events: readonly NewEventRow[]): Promise<void> {
  const marks = await Promise.all(events.map(async (event) => markFor(sql, event.leaf ?? leafOf(event))));
  await sql.query(
    `insert into events (${COLUMNS}, actor_kind, actor_id, resource_id, leaf, mark)
     select * from unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::text[], $5::text[], $6::json[], $7::json[],
       $8::text[], $9::text[], $10::uuid[], $11::bytea[], $12::bytea[])`,
    [
      events.map(({ org_id }) => org_id),
      events.map(({ id }) => id),
      events.map(({ occurred_at }) => occurred_at),
      events.map(({ category }) => category),
      events.map(({ event_type }) => event_type),
      events.map(({ actor }) => JSON.stringify(actor)),
      events.map(({ payload }) => JSON.stringify(payload)),
      events.map(({ actor_kind }) => actor_kind),
      events.map(({ actor_id }) => actor_id),
      events.map(({ resource_id }) => resource_id),
      events.map(({ leaf }) => leaf),
      marks,
    ],
  );
}

/** Does the organization have an event of this type? */
export async function hasEventOfType(sql: Sql, orgId: string, type: string): Promise<boolean> {
  const { rows } = await sql.query('select 1 from events where org_id = $1 and event_type = $2 limit 1', [
    orgId,
    type,
  ]);
  return rows.length > 0;
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
export const FILTER_COLUMNS = {
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

/** Adds what a filter asks of the columns of `events`, which the query may call `alias`. `given`: how a value stands in the text. */
export function addFilter(
  where: Conditions,
  { columns, since, until }: EventFilter,
  alias: 'events' | 'e' = 'events',
  given = (value: string, type: string) => `${value}::${type}`,
): Conditions {
  for (const { column, include, exclude } of columns) {
    const type = FILTER_COLUMNS[column];
    // The cast outside tells a list from a query for its members.
    const isAny = (p: (value: unknown) => string, values: string[]) =>
      `${alias}.${column} = any (${given(p(values), `${type}[]`)}::${type}[])`;
    if (include.length > 0) where.add((p) => isAny(p, include));
    // An event without a resource is not about the one that is excluded.
    if (exclude.length > 0) where.add((p) => `(${isAny(p, exclude)}) is not true`);
  }
  if (since !== undefined) where.add((p) => `${alias}.occurred_at >= ${p(since)}::timestamptz`);
  if (until !== undefined) where.add((p) => `${alias}.occurred_at <= ${p(until)}::timestamptz`);
  return where;
}
