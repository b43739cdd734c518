import { join } from 'node:path';
import { ActiveEventKeys } from '../../src/audit/events/active-keys.js';
import { type EventKeys } from '../../src/audit/events/event-keys.js';
import { openEventKeys } from '../../src/audit/log/signing-key.js';
import { openDataDirectory } from '../../src/db/embedded/directory.js';
import { readPidFile } from '../../src/db/embedded/postmaster.js';
import { openForServer } from '../../src/db/open.js';
import { openPool, type Address, type PgPool } from '../../src/db/pool.js';

/** A database in a directory that `sandkeep serve` can use as its data directory. */
export interface Store {
  directory: string;
  address: Address;
  url: string;
  pool: PgPool;
  keys: EventKeys;
  /** The process id of PostgreSQL. */
  postmaster: number;
  close(): Promise<void>;
}

export async function openStore(directory: string): Promise<Store> {
  const dataDir = join(directory, 'db');
  const database = await openForServer({
    databaseUrl: undefined,
    dataDir,
    command: 'bench',
    onCrash: (error) => console.error('the database ended', error),
  });
  const { address } = database;
  if (!('socket' in address)) throw new Error('the bench has a database of its own');
  const keys = openEventKeys({ file: join(directory, 'event-keys') });
  const pool = openPool(address, () => undefined, new ActiveEventKeys(keys).marker);
  return {
    directory,
    address,
    pool,
    keys: keys(),
    url: `postgres://sandkeep@/sandkeep?host=${encodeURIComponent(address.socket)}`,
    postmaster: readPidFile(openDataDirectory(dataDir))!.pid,
    close: async () => {
      await pool.end();
      await database.close();
    },
  };
}
