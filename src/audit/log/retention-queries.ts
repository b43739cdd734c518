import type { Sql } from '../../db/pool.js';
import { Conditions } from '../../lib/conditions.js';
import type { Instant } from '../../lib/instant.js';
import type { Drop } from './checkpoint.js';
import type { Entry } from './entry.js';
import type { KeptFor } from './retention-signature.js';

const KEPT_FOR = 'org_id, retention_months, retention_at, retention_key_id, retention_signature';
const DROP = 'org_id, seq, link, at, dropped_before, base_seq, base_link, key_id, signature';

export async function orgsWithRetention(sql: Sql): Promise<(KeptFor & { retention_months: number })[]> {
  const { rows } = await sql.query<KeptFor & { retention_months: number } & Record<string, unknown>>(
    `select ${KEPT_FOR} from event_chains where retention_months is not null order by org_id`,
  );
  return rows;
}

export async function getKeptFor(sql: Sql, orgId: string): Promise<KeptFor | undefined> {
  const { rows } = await sql.query<KeptFor & Record<string, unknown>>(
    `select ${KEPT_FOR} from event_chains where org_id = $1`,
    [orgId],
  );
  return rows[0];
}

export async function updateKeptFor(tx: Sql, kept: KeptFor): Promise<void> {
  const { org_id, retention_months, retention_at, retention_key_id, retention_signature } = kept;
  await tx.query(
    `update event_chains
     set retention_months = $2, retention_at = $3, retention_key_id = $4, retention_signature = $5
     where org_id = $1`,
    [org_id, retention_months, retention_at, retention_key_id, retention_signature],
  );
}

/** How far the clock of the database is from a moment, in seconds. */
export async function secondsFrom(sql: Sql, at: Instant): Promise<number> {
  const { rows } = await sql.query<{ seconds: number }>(
    'select abs(extract(epoch from clock_timestamp() - $1::timestamptz))::float8 as seconds',
    [at],
  );
  return rows[0]!.seconds;
}

/** How many events of the log up to an entry are older, and not dropped already. */
export async function countDue(tx: Sql, orgId: string, before: Instant, upToSeq: number): Promise<number> {
  const { rows } = await tx.query<{ count: number }>(
    `select count(*) from events e
     join event_log l on l.org_id = $1 and l.event_id = e.id and l.seq <= $3
     where e.org_id = $1 and e.occurred_at < $2 and not exists (
       select from event_drops d where d.org_id = $1 and d.seq >= l.seq and d.dropped_before > e.occurred_at)`,
    [orgId, before, upToSeq],
  );
  return rows[0]!.count;
}

type DueEntry = Omit<Entry, 'event' | 'event_id'>;

/** The next entries of the log up to one, in order, `limit` at most. */
export async function readLinks(
  tx: Sql,
  orgId: string,
  { after, upTo, limit }: { after: number; upTo: number; limit: number },
): Promise<DueEntry[]> {
  const { rows } = await tx.query<DueEntry & Record<string, unknown>>(
    `select seq, occurred_at, leaf, unmarked, link from event_log
     where org_id = $1 and seq > $2 and seq <= $3
     order by seq limit $4`,
    [orgId, after, upTo, limit],
  );
  return rows;
}

export async function insertDrop(tx: Sql, drop: Drop): Promise<void> {
  const { org_id, seq, link, at, dropped_before, base_seq, base_link, key_id, signature } = drop;
  await tx.query(
    `insert into event_drops (${DROP})
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
    [org_id, seq, link, at, dropped_before, base_seq, base_link, key_id, signature],
  );
}

/** For who puts it back, signed anew. */
export async function deleteDrop(tx: Sql, { org_id, seq }: Drop): Promise<void> {
  await tx.query('delete from event_drops where org_id = $1 and seq = $2', [org_id, seq]);
}

/** All that was dropped of an organization, in order. The log begins where the last one says. */
export async function readDrops(sql: Sql, orgId: string): Promise<Drop[]> {
  const { rows } = await sql.query<Drop & Record<string, unknown>>(
    `select ${DROP} from event_drops where org_id = $1 order by seq`,
    [orgId],
  );
  return rows;
}

/** What is to be gone: the drops of all organizations of which no later one says all that they say. */
export async function standingDrops(sql: Sql): Promise<Drop[]> {
  const { rows } = await sql.query<Drop & Record<string, unknown>>(
    `select ${DROP} from event_drops d
     where not exists (
       select from event_drops later
       where later.org_id = d.org_id and later.seq > d.seq
         and later.dropped_before >= d.dropped_before and later.base_seq >= d.base_seq)
     order by org_id, seq`,
  );
  return rows;
}

/** What the triggers let through until the transaction ends. */
export async function allowRemoval(tx: Sql): Promise<void> {
  await tx.query("select set_config('sandkeep.event_retention', 'on', true)");
}

/** A place among the events of an organization. */
export type EventPlace = readonly [occurredAt: Instant, id: string];

/**
 * Removes dropped events that are not older than `from`, before `to`, after `after`, `limit` at most. Returns the last of them;
 * undefined when there were fewer.
 */
export async function deleteDropped(
  tx: Sql,
  { org_id, seq }: Drop,
  [from, to]: readonly [from: Instant, to: Instant],
  after: EventPlace | undefined,
  limit: number,
): Promise<EventPlace | undefined> {
  const where = new Conditions()
    .add((p) => `e.org_id = ${p(org_id)}`)
    .add((p) => `e.occurred_at >= ${p(from)}::timestamptz`)
    .add((p) => `e.occurred_at < ${p(to)}::timestamptz`)
    // Each by itself: a planner that takes a month for empty would join it to all of the log.
    .add((p) => `(select l.seq from event_log l where l.org_id = $1 and l.event_id = e.id) <= ${p(seq)}`);
  const compare = (operator: string, [at, id]: EventPlace) =>
    where.add((p) => `(e.occurred_at, e.id) ${operator} (${p(at)}::timestamptz, ${p(id)}::uuid)`);
  // Behind those of the batch before: what these leave in the index stays as long as anybody has an old snapshot.
  if (after) compare('>', after);
  const { rows } = await tx.query<{ occurred_at: Instant; id: string }>(
    `select e.occurred_at, e.id from events e where ${where.text}
     order by e.occurred_at, e.id limit 1 offset ${limit - 1}`,
    where.values,
  );
  const last = rows[0] && ([rows[0].occurred_at, rows[0].id] as const);
  if (last) compare('<=', last);
  await tx.query(`delete from events e where ${where.text}`, where.values);
  return last;
}

/** Removes the checkpoints that lie before the beginning of a log. Returns the first entry that does. */
export async function deleteCheckpoints(tx: Sql, { org_id, base_seq }: Drop): Promise<number | undefined> {
  await tx.query('delete from event_checkpoints where org_id = $1 and seq <= $2', [org_id, base_seq]);
  const { rows } = await tx.query<{ first: number | null }>(
    'select min(seq) as first from event_log where org_id = $1 and seq <= $2',
    [org_id, base_seq],
  );
  return rows[0]!.first ?? undefined;
}

export async function deleteEntries(tx: Sql, orgId: string, from: number, to: number): Promise<void> {
  await tx.query('delete from event_log where org_id = $1 and seq between $2 and $3', [orgId, from, to]);
}

/** Forgets the months in which nothing is left. For who holds the chain: nothing is put into the log meanwhile. */
export async function forgetMonths(tx: Sql, { org_id, dropped_before }: Drop): Promise<void> {
  await tx.query(
    `delete from event_months m
     where m.org_id = $1 and m.month < $2 and not exists (
       select from events e
       where e.org_id = $1 and e.occurred_at < $2
         and e.occurred_at >= m.month and e.occurred_at < m.month + interval '1 month')`,
    [org_id, dropped_before],
  );
}
