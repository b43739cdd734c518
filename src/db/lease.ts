import type pg from 'pg';
import { connectAlone, type Address } from './pool.js';

/**
 * A role that one process at a time has, by an advisory lock of a database session: it ends with the process or its
 * connection, however they end.
 */
export interface Lease {
  /** Do we have it? Takes it when it is free. Throws when the database does not answer: then we do not have it. */
  held(): Promise<boolean>;
  release(): Promise<void>;
}

/** A connection that is cut off without a word must not leave two believing they have the role. */
const ANSWER_TIMEOUT_MS = 5_000;

export function holdLease(address: Address, name: string): Lease {
  let client: pg.Client | undefined;
  let owned = false;

  async function release(): Promise<void> {
    const old = client;
    client = undefined;
    owned = false;
    await old?.end().catch(() => undefined);
  }

  return {
    release,
    async held() {
      try {
        client ??= await connectAlone(address, { keepAlive: true, query_timeout: ANSWER_TIMEOUT_MS });
        if (owned) {
          await client.query('select');
        } else {
          const { rows } = await client.query<{ taken: boolean }>(
            'select pg_try_advisory_lock(hashtextextended($1, 0)) as taken',
            [name],
          );
          owned = rows[0]!.taken;
        }
        return owned;
      } catch (error) {
        await release();
        throw error;
      }
    },
  };
}
