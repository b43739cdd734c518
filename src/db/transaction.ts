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
  readonly span?: Span | undefined;
}

export type Transaction = EventSql & pg.PoolClient;

/**
 * Runs `work` in one transaction; no other code opens one. It retries after a deadlock, a serialization failure, a stale
 * prepared statement, or `Overtaken`. So `work` has no effects besides its statements. After `Unconfirmed` the commit may succeed.
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
    const client = await pool.connect();
    let broken: Error | undefined;
    let isCommitting = false;
    try {
      await client.query('begin');
      if (unhurried) {
        await client.query(
          'set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0',
        );
      }
      const result = await work(Object.assign(client, { eventMarker: pool.eventMarker, span: pool.span }));
      const commit = client.query('commit');
      const slow = setTimeout(() => pool.onSlowCommit?.(), SLOW_COMMIT_MS);
      await (unhurried ? commit : inTime(commit))
        .finally(() => clearTimeout(slow))
        .catch((error: unknown) => {
          isCommitting = error instanceof Unconfirmed;
          // A closed connection would leave its session waiting on the server.
          if (isCommitting)
            void commit.then(
              () => client.release(),
              (cause: Error) => client.release(cause),
            );
          throw error;
        });
      return result;
    } catch (error) {
      if (isCommitting) throw error;
      await client.query('rollback').catch((cause: unknown) => (broken = cause as Error));
      const state = sqlState(error);
      const outOfStep = isOutOfStep(error);
      if (outOfStep) broken = error as Error;
      const conflict =
        outOfStep || error instanceof Overtaken || state === DEADLOCK || state === SERIALIZATION;
      if (!conflict || unhurried || attempt === ATTEMPTS) throw error;
    } finally {
      if (!isCommitting) client.release(broken);
    }
  }
}

function inTime(commit: Promise<unknown>): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const late = () => reject(new Unconfirmed('the database has not confirmed a commit in time'));
    const timer = setTimeout(late, COMMIT_TIMEOUT_MS);
    void commit.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
