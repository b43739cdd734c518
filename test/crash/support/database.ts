import { mkdtempSync, rmSync, chmodSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { migrate } from '../../../src/db/migrate.js';
import { openForServer } from '../../../src/db/open.js';
import { connectionConfig, openPool, type Address, type PgPool } from '../../../src/db/pool.js';
import { sleep } from '../../../src/lib/sleep.js';
import { withDatabase } from '../../support/database.js';
import { databaseOf, kill } from '../../support/processes.js';

/** A PostgreSQL server for one test, which the test can kill and which restarts by itself. */
export interface OwnDatabase {
  /** Creates a migrated, empty database. */
  create(name: string): Promise<{ address: Address; pool: PgPool }>;
  /** Sends SIGKILL to all its processes. Undefined for an external server, which others may use. */
  kill: (() => void) | undefined;
  /** Undefined for a server without a standby. */
  replication?: Replication;
  close(): Promise<void>;
}

/** The steps of a failover, in their order. */
export interface Replication {
  /** Sends SIGKILL to all processes of the primary. */
  killPrimary(): Promise<void>;
  /** Returns when the standby is the primary. */
  promote(): void;
  /** Starts the previous primary again. It knows of no other, and accepts writes at once. */
  resurrect(): Promise<void>;
  /** Makes the previous primary the synchronous standby. Throws when somebody wrote to it after `resurrect`. */
  rejoin(): Promise<void>;
}

/** Opens the embedded server, or the one that SANDKEEP_TEST_DATABASE_URL names. */
export async function openOwnDatabase(): Promise<OwnDatabase> {
  const dataDir = mkdtempSync(join(tmpdir(), 'sandkeep-crash-db-'));
  chmodSync(dataDir, 0o755);
  const databaseUrl = process.env['SANDKEEP_TEST_DATABASE_URL'];
  const database = await openForServer({ databaseUrl, dataDir, command: 'test', onCrash: () => undefined });
  const made: { name: string; pool: PgPool }[] = [];
  return {
    async create(name) {
      await administer(database.address, `drop database if exists ${name} with (force)`);
      await administer(database.address, `create database ${name} template template0`);
      const address = withDatabase(database.address, name);
      await migrate(address);
      const pool = openPool(address, () => undefined);
      made.push({ name, pool });
      return { address, pool };
    },
    kill: databaseUrl === undefined ? () => killAll(dataDir) : undefined,
    async close() {
      for (const { pool } of made) await pool.end();
      if (databaseUrl !== undefined) {
        for (const { name } of made) await administer(database.address, `drop database ${name} with (force)`);
      }
      await database.close();
      rmSync(dataDir, { recursive: true, force: true });
    },
  };
}

/** The shells that guard PostgreSQL survive and see it end, as when the kernel kills it for memory. */
function killAll(dataDir: string): void {
  const { all, guards } = databaseOf(dataDir);
  kill('SIGKILL', ...all.filter((pid) => !guards.includes(pid)));
}

async function administer(server: Address, statement: string): Promise<void> {
  const admin = new pg.Client(connectionConfig(withDatabase(server, 'template1')));
  admin.on('error', () => undefined);
  await admin.connect();
  await admin.query(statement);
  await admin.end();
}

/** A busy machine may take minutes for the recovery of the database. */
const UP_WITHIN_MS = 300_000;

/** Retries work that fails while the database is down. */
export async function whenUp<T>(work: () => Promise<T>): Promise<T> {
  const deadline = performance.now() + UP_WITHIN_MS;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (performance.now() > deadline) throw error;
      await sleep(25);
    }
  }
}
