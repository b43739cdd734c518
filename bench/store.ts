import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { migrate } from '../src/db/migrate.js';
import { openForServer } from '../src/db/open.js';
import { openPool, type Address, type PgPool } from '../src/db/pool.js';

/** A new database for one measurement, with the schema of this release, and the programs on it. */
export interface Store {
  /** Removed with the store. */
  directory: string;
  address: Address;
  /** The same as `address`, for a command line. */
  url: string;
  pool: PgPool;
  /** Starts a Node program that prints a line of JSON with its `address` when it serves. */
  start(args: readonly string[]): Promise<{ child: ChildProcess; url: string }>;
  /** Kills the programs, and removes everything. */
  close(): Promise<void>;
}

export async function openStore(): Promise<Store> {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  const database = await openForServer({
    databaseUrl: undefined,
    dataDir: join(directory, 'data'),
    command: 'bench',
    onCrash: (error) => console.error('the database ended', error),
  });
  const { address } = database;
  if (!('socket' in address)) throw new Error('the bench has a database of its own');
  await migrate(address);
  const pool = openPool(address, () => undefined);
  const children: ChildProcess[] = [];
  return {
    directory,
    address,
    pool,
    url: `postgres://sandkeep@/sandkeep?host=${encodeURIComponent(address.socket)}`,
    async start(args) {
      const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
      children.push(child);
      const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
      return { child, url: (JSON.parse(line) as { address: string }).address };
    },
    async close() {
      for (const child of children) {
        if (child.exitCode !== null || child.signalCode !== null) continue;
        child.kill('SIGKILL');
        await once(child, 'exit');
      }
      await pool.end();
      await database.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
