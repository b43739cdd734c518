import type { Pool } from '../../src/db/pool.js';
import { inTransaction } from '../../src/db/transaction.js';

const LOCK = 4711;

/** Commits of transactions that insert into the table wait until `work` has ended. */
export async function whileCommitsWait<T>(pool: Pool, table: string, work: () => Promise<T>): Promise<T> {
  await pool.query(`
    create function held_commit() returns trigger language plpgsql as $$
      begin perform pg_advisory_xact_lock_shared(${LOCK}); return null; end $$;
    create constraint trigger held_commit after insert on ${table} deferrable initially deferred
      for each row execute function held_commit()`);
  try {
    return await inTransaction(pool, async (tx) => {
      await tx.query('select pg_advisory_xact_lock($1)', [LOCK]);
      return work();
    });
  } finally {
    await pool.query('drop function held_commit cascade');
  }
}

export async function countWaitingCommits(pool: Pool): Promise<number> {
  const { rows } = await pool.query(
    "select from pg_stat_activity where datname = current_database() and wait_event = 'advisory'",
  );
  return rows.length;
}
