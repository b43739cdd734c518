import { Buffer } from 'node:buffer';
import type { Sql } from '../../db/pool.js';
import { write, type EventTarget } from '../../db/write-batch.js';
import type { Conditions } from '../../lib/conditions.js';
import type { Instant } from '../../lib/instant.js';
import { leafOf, type EventContent } from './hash-chain.js';
import { noteLength } from './long-events.js';
import type { EventActor } from './schema.js';

export type EventRow = Omit<EventContent, 'resource_id'>;

export interface NewEventRow extends EventContent {
  actor_kind: EventActor['kind'];
  actor_id: string;
  /** Null: the sealer computes it. */
  leaf: Buffer | null;
}

const COLUMNS = 'org_id, id, occurred_at, category, event_type, actor, payload';

export async function insertEvent(target: EventTarget, event: NewEventRow): Promise<void> {
  const mark = await target.eventMarker?.();
  const payload = JSON.stringify(event.payload);
  noteLength(target, Buffer.byteLength(payload));
  await write(
    target,
    (p) => `insert into events (${COLUMNS}, actor_kind, actor_id, resource_id, leaf, mark)
     values (${p(event.org_id)}, ${p(event.id)}, ${p(event.occurred_at)}, ${p(event.category)}, ${p(event.event_type)},
       ${p(JSON.stringify(event.actor))}, ${p(payload)}, ${p(event.actor_kind)}, ${p(event.actor_id)},
       ${p(event.resource_id)}, ${p(event.leaf)}, ${p(mark?.(event.leaf ?? leafOf(event)) ?? null)})`,
  );
}

export async function insertEvents(target: EventTarget, events: readonly NewEventRow[]): Promise<void> {
  const mark = await target.eventMarker?.();
  await write(
    target,
    (p) => `insert into events (${COLUMNS}, actor_kind, actor_id, resource_id, leaf, mark)
     select * from unnest(
       ${p(events.map(({ org_id }) => org_id))}::uuid[],
       ${p(events.map(({ id }) => id))}::uuid[],
       ${p(events.map(({ occurred_at }) => occurred_at))}::timestamptz[],
       ${p(events.map(({ category }) => category))}::text[],
       ${p(events.map(({ event_type }) => event_type))}::text[],
       ${p(events.map(({ actor }) => JSON.stringify(actor)))}::json[],
       ${p(events.map(({ payload }) => JSON.stringify(payload)))}::json[],
       ${p(events.map(({ actor_kind }) => actor_kind))}::text[],
       ${p(events.map(({ actor_id }) => actor_id))}::text[],
       ${p(events.map(({ resource_id }) => resource_id))}::uuid[],
       ${p(events.map(({ leaf }) => leaf))}::bytea[],
       ${p(events.map((event) => mark?.(event.leaf ?? leafOf(event)) ?? null))}::bytea[]
     )`,
  );
}

export async function hasEventOfType(sql: Sql, orgId: string, type: string): Promise<boolean> {
  const { rows } = await sql.query('select 1 from events where org_id = $1 and event_type = $2 limit 1', [
    orgId,
    type,
  ]);
  return rows.length > 0;
}

export async function getEvent(sql: Sql, orgId: string, id: string): Promise<EventContent | undefined> {
  const { rows: times } = await sql.query<{ occurred_at: Instant }>(
    `select occurred_at from event_log where org_id = $1 and event_id = $2
     union all
     select occurred_at from unsealed_events where org_id = $1 and event_id = $2
     limit 1`,
    [orgId, id],
  );
  const time = times.at(0);
  if (!time) return undefined;
  const { rows } = await sql.query<EventContent & Record<string, unknown>>(
    `select ${COLUMNS}, resource_id from events where org_id = $1 and occurred_at = $2 and id = $3`,
    [orgId, time.occurred_at, id],
  );
  return rows.at(0);
}

export const FILTER_COLUMNS = {
  event_type: 'text',
  category: 'text',
  actor_kind: 'text',
  actor_id: 'text',
  resource_id: 'uuid',
} as const;
export type FilterColumn = keyof typeof FILTER_COLUMNS;

export interface EventFilter {
  /** Events have any value of `include`, unless it is empty, and no value of `exclude`. */
  columns: { column: FilterColumn; include: string[]; exclude: string[] }[];
  since: Instant | undefined;
  until: Instant | undefined;
}

/** `alias`: the name of `events` in the query. `given`: writes a placeholder with its type. */
export function addFilter(
  where: Conditions,
  { columns, since, until }: EventFilter,
  alias: 'events' | 'e' = 'events',
  given = (value: string, type: string) => `${value}::${type}`,
): Conditions {
  for (const { column, include, exclude } of columns) {
    const type = FILTER_COLUMNS[column];
    // With the outer cast PostgreSQL reads `any` of an array, not of a subquery.
    const isAny = (p: (value: unknown) => string, values: string[]) =>
      `${alias}.${column} = any (${given(p(values), `${type}[]`)}::${type}[])`;
    if (include.length > 0) where.add((p) => isAny(p, include));
    // An event without a resource passes the exclusion.
    if (exclude.length > 0) where.add((p) => `(${isAny(p, exclude)}) is not true`);
  }
  if (since !== undefined) where.add((p) => `${alias}.occurred_at >= ${p(since)}::timestamptz`);
  if (until !== undefined) where.add((p) => `${alias}.occurred_at <= ${p(until)}::timestamptz`);
  return where;
}
