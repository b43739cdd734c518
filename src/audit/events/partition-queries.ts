import type { Sql } from '../../db/pool.js';
import type { Transaction } from '../../db/transaction.js';
import type { Instant } from '../../lib/instant.js';

/**
 * A reader of a snapshot calls it first: another transaction could drop a partition together with events of the
 * snapshot.
 */
export async function lockPartitions(tx: Transaction): Promise<void> {
  await tx.query('lock table only events in access share mode');
}

export async function setLockTimeout(tx: Transaction, millis: number): Promise<void> {
  await tx.query(`set local lock_timeout = ${millis}`);
}

export async function createPartition(tx: Transaction, first: Instant, months = 0): Promise<void> {
  await tx.query(`select make_event_partition($1::timestamptz + $2 * interval '1 month')`, [first, months]);
}

export async function stagedMonths(sql: Sql, count: number): Promise<Instant[]> {
  const { rows } = await sql.query<{ month: Instant }>(
    `select date_trunc('month', occurred_at) as month from staged_event
     group by 1 having count(*) >= $1 order by 1`,
    [count],
  );
  return rows.map(({ month }) => month);
}

export async function partitionsBefore(sql: Sql, before: Instant): Promise<string[]> {
  const { rows } = await sql.query<{ name: string }>(
    `select c.relname as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = 'events'::regclass and c.relname ~ '^events_[0-9]{4}_[0-9]{2}$' and c.relname < $1
     order by 1`,
    [`events_${before.slice(0, 4)}_${before.slice(5, 7)}`],
  );
  return rows.map(({ name }) => name);
}

export async function dropIfEmpty(tx: Transaction, name: string): Promise<void> {
  // The lock refuses new events. Readers and writers of other months wait only for the drop itself.
  await tx.query(`lock table ${name} in share row exclusive mode`);
  const { rows } = await tx.query<{ found: boolean }>(`select true as found from ${name} limit 1`);
  if (rows.length === 0) await tx.query(`drop table ${name}`);
}
