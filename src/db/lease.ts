import pg from 'pg';
import { connectionConfig, type Address } from './pool.js';

/**
 * A role that one process at a time has, by an advisory lock of a database session: it ends with the process or its
 * connection, however they end.
 */
export interface Lease {
  /** Do we have it? Takes it when it is free. */
  held(): Promise<boolean>;
  release(): Promise<void>;
}

export function holdLease(address: Address, name: string, onError: (error: Error) => void): Lease {
  let client: pg.Client | undefined;

  async function drop(): Promise<void> {
    const old = client;
    client = undefined;
    await old?.end().catch(() => undefined);
  }

  return {
    async held() {
      if (client) return true;
      const candidate = new pg.Client({ ...connectionConfig(address), keepAlive: true });
      candidate.on('error', (error) => {
        onError(error);
        if (client === candidate) void drop();
      });
      await candidate.connect();
      const { rows } = await candidate.query<{ taken: boolean }>(
        'select pg_try_advisory_lock(hashtextextended($1, 0)) as taken',
        [name],
      );
      if (!rows[0]!.taken) {
        await candidate.end();
        return false;
      }
      client = candidate;
      return true;
    },
    release: drop,
  };
}
