import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import type { EventRow } from './queries.js';
import type { EventActor } from './schema.js';

/** A place in the log of an organization. */
export interface LogEntry {
  /** From 1, without gaps; nothing is ever put before what was seen. */
  seq: number;
  event_id: string;
  occurred_at: Instant;
  leaf: Buffer;
  link: Buffer;
  /** Null when retention has dropped it. */
  event: (EventRow & { resource_id: string | null }) | null;
}

/**
 * The entries after `afterSeq`, in order, `limit` at most: the first ones have `afterSeq` 0. Each committed event comes in
 * exactly once, within about a second. The first entry may be later than `afterSeq + 1` where retention dropped those before.
 */
export async function readLog(sql: Sql, orgId: string, afterSeq: number, limit: number): Promise<LogEntry[]> {
  const { rows } = await sql.query<RawEntry>(
    `select l.seq, l.event_id, l.occurred_at, l.leaf, l.link,
       e.category, e.event_type, e.actor, e.payload, e.resource_id
     from (
       select * from event_log where org_id = $1 and seq > $2 order by seq limit $3
     ) l
     left join events e on e.org_id = $1 and e.occurred_at = l.occurred_at and e.id = l.event_id
     order by l.seq`,
    [orgId, afterSeq, limit],
  );
  return rows.map((row) => toEntry(orgId, row));
}

interface RawEntry {
  [column: string]: unknown;
  seq: number;
  event_id: string;
  occurred_at: Instant;
  leaf: Buffer;
  link: Buffer;
  category: string | null;
  event_type: string | null;
  actor: EventActor;
  payload: unknown;
  resource_id: string | null;
}

function toEntry(orgId: string, row: RawEntry): LogEntry {
  const { seq, event_id, occurred_at, leaf, link } = row;
  const { category, event_type, actor, payload, resource_id } = row;
  const event =
    category === null || event_type === null
      ? null
      : { org_id: orgId, id: event_id, occurred_at, category, event_type, actor, payload, resource_id };
  return { seq, event_id, occurred_at, leaf, link, event };
}

/** Where the log of an organization ends; 0 when there is nothing in it. */
export async function readEndSeq(sql: Sql, orgId: string): Promise<number> {
  const { rows } = await sql.query<{ seq: number }>('select seq from event_chains where org_id = $1', [
    orgId,
  ]);
  return rows[0]?.seq ?? 0;
}
