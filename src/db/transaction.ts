import type pg from 'pg';
import { DEADLOCK, sqlState, type EventMarker, type Pool, type Sql } from './pool.js';
import { isOutOfStep } from './prepared.js';

const SERIALIZATION = '40001';
const ATTEMPTS = 5;

/** To be thrown by what finds that it has to begin anew, with nothing held: what it went by has changed meanwhile. */
export class Overtaken extends Error {}

/** SQL inside a transaction that can write audit events. */
export interface EventSql extends Sql {
  readonly eventMarker: EventMarker | undefined;
}

/** A connection inside a transaction: runs SQL, and takes COPY streams. */
export type Transaction = EventSql & pg.PoolClient;

/**
 * Runs `work` in one transaction: committed when it returns, rolled back when it throws. The only place that opens one.
 *
 * `work` runs again from the start when PostgreSQL ended it to resolve a deadlock, when a table is not any more what it was when a
 * statement was prepared, or when it throws `Overtaken`, so it must have no effects beside its statements.
 */
export async function inTransaction<T>(
  pool: Pool,
  work: (tx: Transaction) => Promise<T>,
  /** `unhurried`: for long work, without the time-outs of a request and not run again. */
  { unhurried = false } = {},
): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    const client = await pool.connect();
    let broken: Error | undefined;
    try {
      await client.query('begin');
      if (unhurried) {
        await client.query(
          'set local statement_timeout = 0; set local idle_in_transaction_session_timeout = 0',
        );
      }
      const result = await work(Object.assign(client, { eventMarker: pool.eventMarker }));
      await client.query('commit');
      return result;
    } catch (error) {
      await client.query('rollback').catch((cause: unknown) => (broken = cause as Error));
      const state = sqlState(error);
      const outOfStep = isOutOfStep(error);
      if (outOfStep) broken = error as Error;
      const conflict =
        outOfStep || error instanceof Overtaken || state === DEADLOCK || state === SERIALIZATION;
      if (!conflict || unhurried || attempt === ATTEMPTS) throw error;
    } finally {
      // A connection that could not roll back is not given to the next.
      client.release(broken);
    }
  }
}
