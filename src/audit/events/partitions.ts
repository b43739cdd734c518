import { sqlState, type Pool, type Sql } from '../../db/pool.js';
import { inTransaction, type Transaction } from '../../db/transaction.js';
import { startOfMonth, type Instant } from '../../lib/instant.js';

/** Months that have a partition before their time comes. */
const MONTHS_AHEAD = 2;
/** From so many events on a month of history that is imported gets a partition of its own; fewer stay in events_other. */
const EVENTS_FOR_PARTITION = 10_000;
/** Whoever waits for these locks has everybody wait behind, who reads or writes events. It can be tried again later. */
const LOCK_TIMEOUT_MS = 100;
const LOCK_NOT_AVAILABLE = '55P03';
const UNDEFINED_TABLE = '42P01';

/**
 * Keeps every month where it is until the transaction ends. For who reads from a snapshot, as the first thing, before there is one:
 * what is in it could otherwise go with its month before it is looked at.
 */
export async function keepPartitions(tx: Transaction): Promise<void> {
  await tx.query('lock table only events in access share mode');
}

/** Makes the partitions of the months to come. What is written before there is one keeps its month in events_other for good. */
export async function makePartitionsAhead({ pool, now }: { pool: Pool; now: () => Instant }): Promise<void> {
  const first = startOfMonth(now());
  for (let months = 0; months <= MONTHS_AHEAD; months += 1) {
    await unlessBusy(pool, (tx) =>
      tx.query(`select make_event_partition($1::timestamptz + $2 * interval '1 month')`, [first, months]),
    );
  }
}

/**
 * Makes partitions for the events that an import has staged, by another connection than that of the import: who writes and reads
 * is held up for a moment, and not until all is loaded.
 */
export async function makePartitionsFor(pool: Pool, staged: Sql): Promise<void> {
  const { rows } = await staged.query<{ month: Instant }>(
    `select date_trunc('month', occurred_at) as month from staged_event
     group by 1 having count(*) >= $1 order by 1`,
    [EVENTS_FOR_PARTITION],
  );
  for (const { month } of rows) {
    await unlessBusy(pool, (tx) => tx.query('select make_event_partition($1)', [month]));
  }
}

/** Drops the partitions of months that ended at `before` or earlier and have nothing in them, unless somebody is in the way. */
export async function dropEmptyPartitions(pool: Pool, before: Instant, signal: AbortSignal): Promise<void> {
  for (const name of await partitionsBefore(pool, before)) {
    if (signal.aborted) return;
    // Who reads all months for long is in the way of each: to wait for every one would hold up all others as often.
    if (!(await unlessBusy(pool, (tx) => dropIfEmpty(tx, name)))) return;
  }
}

async function partitionsBefore(sql: Sql, before: Instant): Promise<string[]> {
  const { rows } = await sql.query<{ name: string }>(
    `select c.relname as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = 'events'::regclass and c.relname ~ '^events_[0-9]{4}_[0-9]{2}$' and c.relname < $1
     order by 1`,
    [`events_${before.slice(0, 4)}_${before.slice(5, 7)}`],
  );
  return rows.map(({ name }) => name);
}

async function dropIfEmpty(tx: Transaction, name: string): Promise<void> {
  // Nothing comes into it meanwhile. Who reads and writes other months goes on until the drop itself, which is short.
  await tx.query(`lock table ${name} in share row exclusive mode`);
  const { rows } = await tx.query<{ empty: boolean }>(`select not exists (select from ${name}) as empty`);
  if (rows[0]!.empty) await tx.query(`drop table ${name}`);
}

/** Somebody who reads for long, such as an export, may be in the way: then it is false, and done another time. */
async function unlessBusy(pool: Pool, work: (tx: Transaction) => Promise<unknown>): Promise<boolean> {
  try {
    await inTransaction(
      pool,
      async (tx) => {
        await tx.query(`set local lock_timeout = ${LOCK_TIMEOUT_MS}`);
        await work(tx);
      },
      { unhurried: true },
    );
    return true;
  } catch (error) {
    const state = sqlState(error);
    // Another process dropped it.
    if (state === UNDEFINED_TABLE) return true;
    if (state !== LOCK_NOT_AVAILABLE) throw error;
    return false;
  }
}
