import type pg from 'pg';
import { DEADLOCK, sqlState, Unconfirmed, type EventMarker, type Pool, type Sql } from './pool.js';
import type { Span } from '../lib/tracing.js';
import { isOutOfStep } from './prepared.js';

const SERIALIZATION = '40001';
const ATTEMPTS = 5;
/** PostgreSQL applies no time-out to a commit, which waits for a lost synchronous standby without bound. */
const COMMIT_TIMEOUT_MS = 30_000;
const SLOW_COMMIT_MS = 25;
export const POSTGRESQL = { 'db.system.name': 'postgresql' };

/** Another transaction changed the premises of the work: `inTransaction` retries it. */
export class Overtaken extends Error {}

/** SQL inside a transaction that can write audit events. */
export interface EventSql extends Sql {
  readonly eventMarker: EventMarker | undefined;
  /** The bytes of its long audit events so far. */
  longEventBytes?: number | undefined;
  readonly span?: Span | undefined;
}

export type Transaction = EventSql & pg.PoolClient;

/**
 * Runs `work` in one transaction; no other code opens one. It retries after a deadlock, a serialization failure, a
 * stale prepared statement, or `Overtaken`. So `work` has no effects besides its statements. After `Unconfirmed` the
 * commit may succeed.
 */
export async function inTransaction<T>(
  pool: Pool,
  work: (tx: Transaction) => Promise<T>,
  /** No time-outs and no retry, for long work. */
  options: { unhurried?: boolean } = {},
): Promise<T> {
  const span = pool.span?.child('postgresql transaction', 'client', POSTGRESQL);
  if (!span) return transact(pool, work, options);
  try {
    const result = await transact(pool, work, options);
    span.end();
    return result;
  } catch (error) {
    // A refusal of the work is no fault of the transaction.
    span.end(sqlState(error) ?? 'rolled_back', sqlState(error) !== undefined);
    throw error;
  }
}

export function withSlowCommits(pool: Pool, onSlowCommit: () => void): Pool {
  return Object.assign(Object.create(pool) as Pool, { onSlowCommit });
}

async function transact<T>(
  pool: Pool,
  work: (tx: Transaction) => Promise<T>,
  { unhurried = false }: { unhurried?: boolean },
): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await transactOnce(pool, work, unhurried);
    } catch (error) {
      if (!isConflict(error) || unhurried || attempt === ATTEMPTS) throw error;
    }
  }
}

/** Whether a repetition of the work may succeed. The error proves that nothing was committed. */
function isConflict(error: unknown): boolean {
  const state = sqlState(error);
  return isOutOfStep(error) || error instanceof Overtaken || state === DEADLOCK || state === SERIALIZATION;
}

async function transactOnce<T>(
  pool: Pool,
  work: (tx: Transaction) => Promise<T>,
  unhurried: boolean,
): Promise<T> {
  const client = await pool.connect();
  let result: T;
  let commit: Promise<unknown>;
  let isOutcomeKnown: boolean;
  try {
    await client.query('begin');
    if (unhurried) {
      await client.query(
        'set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0',
      );
    }
    result = await work(
      Object.assign(client, { eventMarker: pool.eventMarker, span: pool.span, longEventBytes: 0 }),
    );
    commit = client.query('commit');
    isOutcomeKnown = await answersInTime(commit, pool, unhurried);
  } catch (error) {
    await rollBack(client, error);
    throw error;
  }
  if (isOutcomeKnown) {
    client.release();
    return result;
  }
  // It has its connection until the server answers: closing the connection would leave the session waiting on the
  // server.
  void commit.then(
    () => client.release(),
    (cause: Error) => client.release(cause),
  );
  throw new Unconfirmed('the database has not confirmed a commit in time');
}

/**
 * Whether the server answers the commit in time. False: whether it commits is not known. Rejects when the commit fails.
 */
async function answersInTime(commit: Promise<unknown>, pool: Pool, unhurried: boolean): Promise<boolean> {
  const slow = setTimeout(() => pool.onSlowCommit?.(), SLOW_COMMIT_MS);
  let late: NodeJS.Timeout | undefined;
  const limit = new Promise<boolean>((resolve) => {
    if (!unhurried) late = setTimeout(() => resolve(false), COMMIT_TIMEOUT_MS);
  });
  try {
    return await Promise.race([commit.then(() => true), limit]);
  } finally {
    clearTimeout(slow);
    clearTimeout(late);
  }
}

/** Releases the connection. It is closed when it cannot roll back, or when its prepared statements are stale. */
async function rollBack(client: pg.PoolClient, error: unknown): Promise<void> {
  let broken = isOutOfStep(error) ? (error as Error) : undefined;
  await client.query('rollback').catch((cause: Error) => (broken ??= cause));
  client.release(broken);
}
