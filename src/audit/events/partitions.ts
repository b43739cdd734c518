import { sqlState, type Pool, type Sql } from '../../db/pool.js';
import { inTransaction, type Transaction } from '../../db/transaction.js';
import { startOfMonth, type Instant } from '../../lib/instant.js';
import {
  createPartition,
  dropIfEmpty,
  partitionsBefore,
  setLockTimeout,
  stagedMonths,
} from './partition-queries.js';

const MONTHS_AHEAD = 2;
/** A month of imported history with fewer events stays in `events_other`. */
const MIN_PARTITION_EVENTS = 10_000;
/** Readers and writers of events queue after a waiting lock request, so the wait is short and a later run retries. */
const LOCK_TIMEOUT_MS = 100;
const LOCK_NOT_AVAILABLE = '55P03';
const UNDEFINED_TABLE = '42P01';

/** Creates the partitions of the coming months. Events written without a partition stay in `events_other`. */
export async function createPartitionsAhead({
  pool,
  now,
}: {
  pool: Pool;
  now: () => Instant;
}): Promise<void> {
  const first = startOfMonth(now());
  for (let months = 0; months <= MONTHS_AHEAD; months += 1) {
    await tryLocked(pool, (tx) => createPartition(tx, first, months));
  }
}

/**
 * Creates partitions for staged events. Each has its own short transaction: that of the import would hold the locks to
 * its end.
 */
export async function createPartitionsForImport(pool: Pool, staged: Sql): Promise<void> {
  for (const month of await stagedMonths(staged, MIN_PARTITION_EVENTS)) {
    await tryLocked(pool, (tx) => createPartition(tx, month));
  }
}

export async function dropEmptyPartitions(pool: Pool, before: Instant, signal: AbortSignal): Promise<void> {
  for (const name of await partitionsBefore(pool, before)) {
    if (signal.aborted) return;
    // A long reader of all months blocks every drop: another attempt would only delay other sessions.
    if (!(await tryLocked(pool, (tx) => dropIfEmpty(tx, name)))) return;
  }
}

/** Returns false when a long reader, such as an export, holds a lock that `work` needs. */
async function tryLocked(pool: Pool, work: (tx: Transaction) => Promise<void>): Promise<boolean> {
  try {
    await inTransaction(
      pool,
      async (tx) => {
        await setLockTimeout(tx, LOCK_TIMEOUT_MS);
        await work(tx);
      },
      { unhurried: true },
    );
    return true;
  } catch (error) {
    const state = sqlState(error);
    if (state === UNDEFINED_TABLE) return true;
    if (state !== LOCK_NOT_AVAILABLE) throw error;
    return false;
  }
}
