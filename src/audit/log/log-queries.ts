import type { Sql } from '../../db/pool.js';
import { Conditions } from '../../lib/conditions.js';
import type { EventContent } from '../events/hash-chain.js';
import { MAX_PAYLOAD_BYTES, payloadLength } from '../events/payload-length.js';
import { addFilter, type EventFilter } from '../events/queries.js';
import type { LogEntry } from './log-entry.js';

/**
 * An entry, and the columns of its event that filters compare. Null: retention dropped the event, or the filter
 * excludes it.
 */
export interface StoredEntry extends LogEntry {
  event: StoredEvent | null;
}

type StoredEvent = EventContent & { actor_kind: string; actor_id: string };

export interface LogRange {
  afterSeq: number;
  upToSeq?: number;
  filter?: EventFilter | undefined;
  during?: During;
}

export type During = Pick<EventFilter, 'since' | 'until'>;

/**
 * Returns fewer than `limit` entries when payloads are long. The first may be later than `afterSeq + 1`: retention
 * drops old entries.
 */
export async function readLog(
  sql: Sql,
  orgId: string,
  range: LogRange,
  limit: number,
): Promise<{ entries: StoredEntry[]; more: boolean }> {
  const { afterSeq, upToSeq = Number.MAX_SAFE_INTEGER, filter, during } = range;
  const where = new Conditions()
    .add((p) => `org_id = ${p(orgId)}`)
    .add((p) => `seq > ${p(afterSeq)} and seq <= ${p(upToSeq)}`);
  if (during) {
    const { since = '-infinity', until = 'infinity' } = during;
    // The sum prevents the index of times: each batch would read and sort all its entries.
    where.add((p) => `occurred_at + interval '0' between ${p(since)} and ${p(until)}`);
  }
  const { rows } = await sql.query<EntryRow & Record<string, unknown>>(
    `select seq, event_id, occurred_at, leaf, unmarked, link from event_log
     where ${where.text}
     order by seq limit ${where.parameter(limit)}`,
    where.values,
  );
  const { events, omitted } = await readEvents(sql, orgId, rows, filter);
  const firstOmitted = rows.findIndex(({ event_id }) => omitted.has(event_id));
  const entries = rows
    .slice(0, firstOmitted === -1 ? undefined : firstOmitted)
    .map((entry) => ({ ...entry, event: events.get(entry.event_id) ?? null }));
  return { entries, more: rows.length === limit || firstOmitted !== -1 };
}

type EntryRow = Omit<LogEntry, 'event'>;

/** The events of these entries, by their ids. `omitted`: the ids after the first MAX_PAYLOAD_BYTES of payloads. */
async function readEvents(
  sql: Sql,
  orgId: string,
  entries: readonly EntryRow[],
  filter: EventFilter | undefined,
): Promise<{ events: Map<string, StoredEvent>; omitted: Set<string> }> {
  if (entries.length === 0) return { events: new Map(), omitted: new Set() };
  const times = entries.map(({ occurred_at }) => occurred_at);
  const sorted = times.toSorted();
  const where = new Conditions()
    .add((p) => `e.org_id = ${p(orgId)}`)
    .add(() => 'e.occurred_at = entry.occurred_at and e.id = entry.event_id')
    // Bounds limit the partitions that PostgreSQL opens.
    .add((p) => `e.occurred_at between ${p(sorted.at(0))} and ${p(sorted.at(-1))}`);
  if (filter) addFilter(where, filter, 'e');
  const ids = where.parameter(entries.map(({ event_id }) => event_id));
  const columns =
    'org_id, id, occurred_at, category, event_type, actor, resource_id, actor_kind, actor_id, payload';
  // With `offset 0` the planner looks up each event by its key; without it, it may join whole months.
  const { rows } = await sql.query<StoredEvent & { fits: boolean } & Record<string, unknown>>(
    `select ${columns.replace(/payload$/, 'case when fits then payload end as payload')}, fits
     from (
       select e.*, sum(length) over (order by number) - length < ${MAX_PAYLOAD_BYTES} as fits
       from unnest(${ids}::uuid[], ${where.parameter(times)}::timestamptz[])
         with ordinality as entry (event_id, occurred_at, number)
       cross join lateral (
         select ${columns}, ${payloadLength('payload')} as length from events e
         where ${where.text}
         offset 0
       ) e
     ) measured`,
    where.values,
  );
  const events = new Map<string, StoredEvent>();
  const omitted = new Set<string>();
  for (const { fits, ...event } of rows) {
    if (fits) events.set(event.id, event);
    else omitted.add(event.id);
  }
  return { events, omitted };
}

/** The last entry of the log; 0: the log is empty. */
export async function readEndSeq(sql: Sql, orgId: string): Promise<number> {
  const { rows } = await sql.query<{ seq: number }>('select seq from event_chains where org_id = $1', [
    orgId,
  ]);
  return rows.at(0)?.seq ?? 0;
}

/**
 * The first and the last entry with an event of this time. Takes about a second for some million entries of the range
 * or the time.
 */
export async function findSpan(
  sql: Sql,
  orgId: string,
  { since = '-infinity', until = 'infinity' }: During,
  { afterSeq = 0, upToSeq = Number.MAX_SAFE_INTEGER }: Partial<LogRange> = {},
): Promise<{ first: number; last: number } | undefined> {
  // Without `offset 0` the planner walks the log from its lowest number to the first match.
  const { rows } = await sql.query<{ first: number; last: number }>(
    `select min(seq) as first, max(seq) as last from (
       select seq from event_log
       where org_id = $1 and occurred_at >= $2 and occurred_at <= $3 and seq > $4 and seq <= $5 offset 0
     ) entries
     having count(*) > 0`,
    [orgId, since, until, afterSeq, upToSeq],
  );
  return rows.at(0);
}
