import type { Sql } from '../db/pool.js';
import { Conditions } from '../lib/conditions.js';
import type { Instant } from '../lib/instant.js';
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
  await sql.query(
    `insert into events (${COLUMNS}, actor_kind, actor_id, resource_id, leaf)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
    [
      ...[event.org_id, event.id, event.occurred_at, event.category, event.event_type],
      ...[JSON.stringify(event.actor), JSON.stringify(event.payload)],
      ...[event.actor_kind, event.actor_id, event.resource_id, event.leaf],
    ],
  );
}

export async function getEvent(sql: Sql, orgId: string, id: string): Promise<EventRow | undefined> {
  const { rows } = await sql.query<EventRow & Record<string, unknown>>(
    `select ${COLUMNS} from events where org_id = $1 and id = $2`,
    [orgId, id],
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

/** Newest first, `limit` at most, after `after` (occurred_at, id). */
export async function listEvents(
  sql: Sql,
  orgId: string,
  filter: EventFilter,
  after: readonly [Instant, string] | undefined,
  limit: number,
): Promise<EventRow[]> {
  const where = addFilter(
    new Conditions().add((p) => `org_id = ${p(orgId)}`),
    filter,
  );
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
