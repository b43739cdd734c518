import type { Sql } from '../../db/pool.js';
import { Conditions } from '../../lib/conditions.js';
import type { Instant } from '../../lib/instant.js';
import type { DropRecord } from './checkpoint.js';
import type { LogEntry } from './log-entry.js';
import type { SignedRetention } from './retention-signature.js';

const RETENTION = 'org_id, retention_months, retention_at, retention_key_id, retention_signature';
const DROP = 'org_id, seq, link, at, dropped_before, base_seq, base_link, key_id, signature';

export async function orgsWithRetention(
  sql: Sql,
): Promise<(SignedRetention & { retention_months: number })[]> {
  const { rows } = await sql.query<SignedRetention & { retention_months: number } & Record<string, unknown>>(
    `select ${RETENTION} from event_chains where retention_months is not null order by org_id`,
  );
  return rows;
}

export async function getRetention(sql: Sql, orgId: string): Promise<SignedRetention | undefined> {
  const { rows } = await sql.query<SignedRetention & Record<string, unknown>>(
    `select ${RETENTION} from event_chains where org_id = $1`,
    [orgId],
  );
  return rows.at(0);
}

export async function updateRetention(tx: Sql, retention: SignedRetention): Promise<void> {
  const { org_id, retention_months, retention_at, retention_key_id, retention_signature } = retention;
  await tx.query(
    `update event_chains
     set retention_months = $2, retention_at = $3, retention_key_id = $4, retention_signature = $5
     where org_id = $1`,
    [org_id, retention_months, retention_at, retention_key_id, retention_signature],
  );
}

export async function clockSkewSeconds(sql: Sql, at: Instant): Promise<number> {
  const { rows } = await sql.query<{ seconds: number }>(
    'select abs(extract(epoch from clock_timestamp() - $1::timestamptz))::float8 as seconds',
    [at],
  );
  return rows.at(0)!.seconds;
}

/** How many events before `before`, of the entries up to `upToSeq`, have no drop record. */
export async function countDue(tx: Sql, orgId: string, before: Instant, upToSeq: number): Promise<number> {
  const { rows } = await tx.query<{ count: number }>(
    `select count(*) from events e
     join event_log l on l.org_id = $1 and l.event_id = e.id and l.seq <= $3
     where e.org_id = $1 and e.occurred_at < $2 and not exists (
       select from event_drops d where d.org_id = $1 and d.seq >= l.seq and d.dropped_before > e.occurred_at)`,
    [orgId, before, upToSeq],
  );
  return rows.at(0)!.count;
}

type DueEntry = Omit<LogEntry, 'event' | 'event_id'>;

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

export async function insertDrop(tx: Sql, drop: DropRecord): Promise<void> {
  const { org_id, seq, link, at, dropped_before, base_seq, base_link, key_id, signature } = drop;
  await tx.query(
    `insert into event_drops (${DROP})
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
    [org_id, seq, link, at, dropped_before, base_seq, base_link, key_id, signature],
  );
}

export async function deleteDrop(tx: Sql, { org_id, seq }: DropRecord): Promise<void> {
  await tx.query('delete from event_drops where org_id = $1 and seq = $2', [org_id, seq]);
}

/** The drop records of an organization in the order of the log. The log begins at the base of the last one. */
export async function listDrops(sql: Sql, orgId: string): Promise<DropRecord[]> {
  const { rows } = await sql.query<DropRecord & Record<string, unknown>>(
    `select ${DROP} from event_drops where org_id = $1 order by seq`,
    [orgId],
  );
  return rows;
}

/** The drop records of all organizations that no later record covers. */
export async function currentDrops(sql: Sql): Promise<DropRecord[]> {
  const { rows } = await sql.query<DropRecord & Record<string, unknown>>(
    `select ${DROP} from event_drops d
     where not exists (
       select from event_drops later
       where later.org_id = d.org_id and later.seq > d.seq
         and later.dropped_before >= d.dropped_before and later.base_seq >= d.base_seq)
     order by org_id, seq`,
  );
  return rows;
}

/** Lets the triggers accept deletions until the transaction ends. */
export async function allowRemoval(tx: Sql): Promise<void> {
  await tx.query("select set_config('sandkeep.event_retention', 'on', true)");
}

export interface EventKey {
  occurred_at: Instant;
  id: string;
}

/** `to`: exclusive. Returns the last of `limit` deleted events; undefined: the window has no more. */
export async function deleteDropped(
  tx: Sql,
  { org_id, seq }: DropRecord,
  { from, to }: { from: Instant; to: Instant },
  after: EventKey | undefined,
  limit: number,
): Promise<EventKey | undefined> {
  const where = new Conditions()
    .add((p) => `e.org_id = ${p(org_id)}`)
    .add((p) => `e.occurred_at >= ${p(from)}::timestamptz`)
    .add((p) => `e.occurred_at < ${p(to)}::timestamptz`)
    // A subquery for each event: for a month that looks empty the planner would join the whole log.
    .add((p) => `(select l.seq from event_log l where l.org_id = $1 and l.event_id = e.id) <= ${p(seq)}`);
  const compare = (operator: string, { occurred_at, id }: EventKey) =>
    where.add((p) => `(e.occurred_at, e.id) ${operator} (${p(occurred_at)}::timestamptz, ${p(id)}::uuid)`);
  // Starts after the previous batch: old snapshots keep its dead rows in the index.
  if (after) compare('>', after);
  const { rows } = await tx.query<EventKey & Record<string, unknown>>(
    `select e.occurred_at, e.id from events e where ${where.text}
     order by e.occurred_at, e.id limit 1 offset ${limit - 1}`,
    where.values,
  );
  const last = rows.at(0);
  if (last) compare('<=', last);
  await tx.query(`delete from events e where ${where.text}`, where.values);
  return last;
}

/** Returns the first entry up to the base of the drop record. */
export async function deleteCheckpoints(
  tx: Sql,
  { org_id, base_seq }: DropRecord,
): Promise<number | undefined> {
  await tx.query('delete from event_checkpoints where org_id = $1 and seq <= $2', [org_id, base_seq]);
  const { rows } = await tx.query<{ first: number | null }>(
    'select min(seq) as first from event_log where org_id = $1 and seq <= $2',
    [org_id, base_seq],
  );
  return rows.at(0)!.first ?? undefined;
}

export async function deleteEntries(tx: Sql, orgId: string, from: number, to: number): Promise<void> {
  await tx.query('delete from event_log where org_id = $1 and seq between $2 and $3', [orgId, from, to]);
}

/** Deletes the rows of empty months. The caller holds the lock of the head, so that no event is sealed meanwhile. */
export async function deleteEmptyMonths(tx: Sql, { org_id, dropped_before }: DropRecord): Promise<void> {
  await tx.query(
    `delete from event_months m
     where m.org_id = $1 and m.month < $2 and not exists (
       select from events e
       where e.org_id = $1 and e.occurred_at < $2
         and e.occurred_at >= m.month and e.occurred_at < m.month + interval '1 month')`,
    [org_id, dropped_before],
  );
}
