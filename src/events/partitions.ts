import type { Context } from '../context.js';
import { sqlState, type Pool, type Sql } from '../db/pool.js';
import { inTransaction, type Transaction } from '../db/transaction.js';
import { startOfMonth, type Instant } from '../lib/instant.js';

/** Months that have a partition before their time comes. */
const MONTHS_AHEAD = 2;
/** From so many events on a month of history that is imported gets a partition of its own; fewer stay in events_other. */
const EVENTS_FOR_PARTITION = 10_000;
/** Whoever waits for these locks has others wait behind; it can be tried again later. */
const LOCK_TIMEOUT_MS = 2_000;
const LOCK_NOT_AVAILABLE = '55P03';

/** Makes the partitions of the months to come. Until there is one, events of its month are in events_other. */
export async function makePartitionsAhead({ pool, now }: Pick<Context, 'pool' | 'now'>): Promise<void> {
  const first = startOfMonth(now());
  for (let months = 0; months <= MONTHS_AHEAD; months += 1) {
    await inHaste(pool, (tx) =>
      tx.query(`select make_event_partition($1::timestamptz + $2 * interval '1 month')`, [first, months]),
    );
  }
}

/** Makes partitions for the events that an import has staged, by another connection than that of the import. */
export async function makePartitionsFor(pool: Pool, staged: Sql): Promise<void> {
  const { rows } = await staged.query<{ month: Instant }>(
    `select date_trunc('month', occurred_at) as month from staged_event
     group by 1 having count(*) >= $1 order by 1`,
    [EVENTS_FOR_PARTITION],
  );
  for (const { month } of rows) {
    await inHaste(pool, (tx) => tx.query('select make_event_partition($1)', [month])).catch(
      (error: unknown) => {
        // Somebody reads for long: then they go where everything goes that has no month of its own.
        if (sqlState(error) !== LOCK_NOT_AVAILABLE) throw error;
      },
    );
  }
}

/** The partitions whose month ended at `before` or earlier. */
export async function partitionsBefore(sql: Sql, before: Instant): Promise<string[]> {
  const { rows } = await sql.query<{ name: string }>(
    `select c.relname as name from pg_inherits i join pg_class c on c.oid = i.inhrelid
     where i.inhparent = 'events'::regclass and c.relname ~ '^events_[0-9]{4}_[0-9]{2}$' and c.relname < $1
     order by 1`,
    [`events_${before.slice(0, 4)}_${before.slice(5, 7)}`],
  );
  return rows.map(({ name }) => name);
}

/** Drops a partition when retention has dropped each event in it. */
export async function dropPartition(pool: Pool, name: string): Promise<boolean> {
  return inHaste(pool, async (tx) => {
    // Nothing comes into it meanwhile.
    await tx.query(`lock table ${name} in share row exclusive mode`);
    const { rows } = await tx.query<{ kept: boolean }>(
      `select exists (
         select from ${name} e
         left join event_log l on l.org_id = e.org_id and l.event_id = e.id
         where not exists (
           select from event_drops d
           where d.org_id = e.org_id and d.dropped_before > e.occurred_at and d.seq >= l.seq)) as kept`,
    );
    if (rows[0]!.kept) return false;
    await tx.query(`drop table ${name}`);
    return true;
  });
}

async function inHaste<T>(pool: Pool, work: (tx: Transaction) => Promise<T>): Promise<T> {
  return inTransaction(pool, async (tx) => {
    await tx.query(`set local lock_timeout = ${LOCK_TIMEOUT_MS}`);
    return work(tx);
  });
}
