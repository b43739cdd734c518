import type { Sql } from '../../db/pool.js';
import { Conditions } from '../../lib/conditions.js';
import type { Instant } from '../../lib/instant.js';
import { lengthOf, MOST_BYTES } from '../events/length.js';
import { addFilter, type EventFilter, type EventRow } from '../events/queries.js';

/** A place in the log of an organization. */
export interface LogEntry extends Place {
  /** Null when retention has dropped it, or it does not pass the filter. */
  event: LoggedEvent | null;
}

interface Place {
  [column: string]: unknown;
  /** From 1, without gaps; nothing is ever put before what was seen. */
  seq: number;
  event_id: string;
  occurred_at: Instant;
  leaf: Buffer;
  /** Nobody who has the event keys wrote its event. */
  unmarked: boolean;
  link: Buffer;
}

type LoggedEvent = EventRow & { resource_id: string | null; actor_kind: string; actor_id: string };

export interface LogPart {
  /** 0: from the first on. */
  afterSeq: number;
  upToSeq?: number;
  filter?: EventFilter | undefined;
  /** Entries of events of this time, and no others. */
  during?: During;
}

/** Both inclusive. */
export type During = Pick<EventFilter, 'since' | 'until'>;

/**
 * The next entries of a part of the log, in order, `limit` at most and fewer where events are long. Each committed event comes in exactly once, within about a second. The first entry may be later than `afterSeq + 1`
 * where retention dropped those before.
 */
export async function readLogStream(
  sql: Sql,
  orgId: string,
  part: LogPart,
  limit: number,
): Promise<{ entries: LogEntry[]; more: boolean }> {
  const { afterSeq, upToSeq = Number.MAX_SAFE_INTEGER, filter, during } = part;
  const where = new Conditions()
    .add((p) => `org_id = ${p(orgId)}`)
    .add((p) => `seq > ${p(afterSeq)} and seq <= ${p(upToSeq)}`);
  if (during) {
    const { since = '-infinity', until = 'infinity' } = during;
    // A sum, so that the log is read in its order: along the index of times each batch would have to find and sort all of them.
    where.add((p) => `occurred_at + interval '0' between ${p(since)} and ${p(until)}`);
  }
  const { rows: places } = await sql.query<Place>(
    `select seq, event_id, occurred_at, leaf, unmarked, link from event_log
     where ${where.text}
     order by seq limit ${where.parameter(limit)}`,
    where.values,
  );
  const events = await readEvents(sql, orgId, places, filter);
  const tooMany = places.findIndex(({ event_id }) => events.get(event_id) === 'too long');
  const entries = places
    .slice(0, tooMany === -1 ? undefined : tooMany)
    .map((place) => ({ ...place, event: (events.get(place.event_id) as LoggedEvent | undefined) ?? null }));
  return { entries, more: places.length === limit || tooMany !== -1 };
}

/** The events of these places, by their ids; of those behind the first MOST_BYTES only that they are there. */
async function readEvents(
  sql: Sql,
  orgId: string,
  places: readonly Place[],
  filter: EventFilter | undefined,
): Promise<Map<string, LoggedEvent | 'too long'>> {
  if (places.length === 0) return new Map();
  const times = places.map(({ occurred_at }) => occurred_at);
  const inOrder = times.toSorted();
  const where = new Conditions()
    .add((p) => `e.org_id = ${p(orgId)}`)
    .add(() => 'e.occurred_at = place.occurred_at and e.id = place.event_id')
    // For what the partitions are: see window.ts.
    .add((p) => `e.occurred_at between ${p(inOrder[0])} and ${p(inOrder.at(-1))}`);
  if (filter) addFilter(where, filter, 'e');
  const ids = where.parameter(places.map(({ event_id }) => event_id));
  const columns =
    'org_id, id, occurred_at, category, event_type, actor, resource_id, actor_kind, actor_id, payload';
  // By `offset 0` each is looked up by itself: a planner that joins them otherwise reads whole months.
  const { rows } = await sql.query<LoggedEvent & { fits: boolean } & Record<string, unknown>>(
    `select ${columns.replace(/payload$/, 'case when fits then payload end as payload')}, fits
     from (
       select e.*, sum(length) over (order by number) - length < ${MOST_BYTES} as fits
       from unnest(${ids}::uuid[], ${where.parameter(times)}::timestamptz[])
         with ordinality as place (event_id, occurred_at, number)
       cross join lateral (
         select ${columns}, ${lengthOf('payload')} as length from events e
         where ${where.text}
         offset 0
       ) e
     ) measured`,
    where.values,
  );
  return new Map(rows.map(({ fits, ...event }) => [event.id, fits ? event : 'too long']));
}

/** Where the log of an organization ends; 0 when there is nothing in it. */
export async function readEndSeq(sql: Sql, orgId: string): Promise<number> {
  const { rows } = await sql.query<{ seq: number }>('select seq from event_chains where org_id = $1', [
    orgId,
  ]);
  return rows[0]?.seq ?? 0;
}

/**
 * The first and the last entry of a part of the log whose event is of this time; undefined when there is none. The log is in the order
 * of sealing, so others may lie between them. What it costs is the number of entries of the part or of that time, whichever are fewer:
 * a second for some millions.
 */
export async function findSpan(
  sql: Sql,
  orgId: string,
  { since = '-infinity', until = 'infinity' }: During,
  { afterSeq = 0, upToSeq = Number.MAX_SAFE_INTEGER }: Partial<LogPart> = {},
): Promise<{ first: number; last: number } | undefined> {
  // By `offset 0` along one of the indexes: a planner that looks for the lowest number first walks the log up to that.
  const { rows } = await sql.query<Record<'first' | 'last', number | null>>(
    `select min(seq) as first, max(seq) as last from (
       select seq from event_log
       where org_id = $1 and occurred_at >= $2 and occurred_at <= $3 and seq > $4 and seq <= $5 offset 0
     ) entries`,
    [orgId, since, until, afterSeq, upToSeq],
  );
  const { first, last } = rows[0]!;
  return first === null || last === null ? undefined : { first, last };
}
