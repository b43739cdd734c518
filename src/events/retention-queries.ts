import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import type { Drop } from './checkpoint.js';

export async function orgsWithRetention(sql: Sql): Promise<{ org_id: string; months: number }[]> {
  const { rows } = await sql.query<{ org_id: string; months: number }>(
    `select org_id, retention_months as months from event_chains
     where retention_months is not null order by org_id`,
  );
  return rows;
}

export async function updateRetention(tx: Sql, orgId: string, months: number | null): Promise<void> {
  await tx.query('update event_chains set retention_months = $2 where org_id = $1', [orgId, months]);
}

/** How many events in the log are older, and not dropped already. */
export async function countDue(tx: Sql, orgId: string, before: Instant): Promise<number> {
  const { rows } = await tx.query<{ count: number }>(
    `select count(*) from events e
     join event_log l on l.org_id = $1 and l.event_id = e.id
     where e.org_id = $1 and e.occurred_at < $2 and not exists (
       select from event_drops d where d.org_id = $1 and d.seq >= l.seq and d.dropped_before > e.occurred_at)`,
    [orgId, before],
  );
  return rows[0]!.count;
}

/** The first entry that is not older, if there is one. */
export async function firstKept(tx: Sql, orgId: string, before: Instant): Promise<number | undefined> {
  const { rows } = await tx.query<{ seq: number }>(
    'select seq from event_log where org_id = $1 and occurred_at >= $2 order by seq limit 1',
    [orgId, before],
  );
  return rows[0]?.seq;
}

export async function linkAt(tx: Sql, orgId: string, seq: number): Promise<Buffer | undefined> {
  const { rows } = await tx.query<{ link: Buffer }>(
    `select link from event_log where org_id = $1 and seq = $2
     union all
     select base_link from event_drops where org_id = $1 and base_seq = $2
     limit 1`,
    [orgId, seq],
  );
  return rows[0]?.link;
}

export async function insertDrop(tx: Sql, drop: Drop): Promise<void> {
  const { org_id, seq, link, at, dropped_before, base_seq, base_link, key_id, signature } = drop;
  await tx.query(
    `insert into event_drops (org_id, seq, link, at, dropped_before, base_seq, base_link, key_id, signature)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
    [org_id, seq, link, at, dropped_before, base_seq, base_link, key_id, signature],
  );
}

export interface DropRow {
  org_id: string;
  seq: number;
  dropped_before: Instant;
  base_seq: number;
}

/** The latest of each organization: what those before it dropped has been removed since. */
export async function latestDrops(sql: Sql): Promise<DropRow[]> {
  const { rows } = await sql.query<DropRow & Record<string, unknown>>(
    `select distinct on (org_id) org_id, seq, dropped_before, base_seq
     from event_drops order by org_id, seq desc`,
  );
  return rows;
}

/** What the triggers let through until the transaction ends. */
export async function allowRemoval(tx: Sql): Promise<void> {
  await tx.query("select set_config('sandkeep.event_retention', 'on', true)");
}

/** Removes dropped events, `limit` at most; returns how many. */
export async function deleteDropped(
  tx: Sql,
  { org_id, seq, dropped_before }: DropRow,
  limit: number,
): Promise<number> {
  const { rowCount } = await tx.query(
    `delete from events e
     using (
       select e.occurred_at, e.id from events e
       join event_log l on l.org_id = $1 and l.event_id = e.id and l.seq <= $2
       where e.org_id = $1 and e.occurred_at < $3
       limit $4
     ) due
     where e.org_id = $1 and e.occurred_at = due.occurred_at and e.id = due.id`,
    [org_id, seq, dropped_before, limit],
  );
  return rowCount ?? 0;
}

/** Removes entries and checkpoints that lie before the beginning, `limit` at most; returns how many. */
export async function deleteEntries(tx: Sql, { org_id, base_seq }: DropRow, limit: number): Promise<number> {
  await tx.query('delete from event_checkpoints where org_id = $1 and seq <= $2', [org_id, base_seq]);
  const { rowCount } = await tx.query(
    `delete from event_log where org_id = $1 and seq in (
       select seq from event_log where org_id = $1 and seq <= $2 order by seq limit $3)`,
    [org_id, base_seq, limit],
  );
  return rowCount ?? 0;
}
