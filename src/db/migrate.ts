import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type pg from 'pg';
import { ExplainedError } from '../lib/explained-error.js';
import { PACKAGE_ROOT } from '../lib/package-root.js';
import { sleep } from '../lib/sleep.js';
import { createInstance } from './instance-queries.js';
import { connectAlone, DEADLOCK, sqlState, type Address, type Sql } from './pool.js';
import { grantMigrated, prepareRequestRole } from './request-role.js';

/** PostgreSQL 15 is the oldest the queries are tested on. */
const OLDEST_SERVER = 150000;
/** Names the lock under which one migrator at a time works; any constant will do. */
const LOCK = 0x53616e64;

const FOLDER = join(PACKAGE_ROOT, 'migrations');

interface Migration {
  number: number;
  name: string;
  text: string;
  checksum: string;
}

/** The migrations this build knows, in order. */
function knownMigrations(): Migration[] {
  return readdirSync(FOLDER)
    .filter((file) => file.endsWith('.sql'))
    .toSorted()
    .map((file, index) => {
      const number = Number(/^(\d{4})_[a-z0-9_]+\.sql$/.exec(file)?.[1]);
      if (number !== index + 1)
        throw new ExplainedError(`migrations/${file} is not the ${index + 1}. in a row without gaps`);
      const text = readFileSync(join(FOLDER, file), 'utf8');
      return { number, name: file, text, checksum: createHash('sha256').update(text).digest('hex') };
    });
}

/**
 * Brings the database to this build's schema; returns the names of what was applied. `onApplied` hears of each migration when it
 * is committed, and how long it took. Any number of processes may call it at once. Throws ExplainedError when the database is too old, too new, or not what the migrations made.
 */
export async function migrate(
  address: Address,
  onApplied: (name: string, millis: number) => void = () => undefined,
): Promise<string[]> {
  // A session of its own: the advisory lock is the session's, and a long index build must not meet a time-out.
  const client = await connectAlone(address);
  try {
    // By a statement: the driver takes 0 for not given, and the limit of every session would stay.
    await client.query('set statement_timeout = 0');
    const { rows } = await client.query<{ server_version_num: string }>('show server_version_num');
    if (Number(rows[0]!.server_version_num) < OLDEST_SERVER) {
      throw new ExplainedError(
        `the server is older than PostgreSQL ${OLDEST_SERVER / 10000}: use a newer one`,
      );
    }
    await client.query('select pg_advisory_lock($1)', [LOCK]);
    await client.query(`
      create table if not exists schema_migrations (
        number int primary key,
        name text not null,
        checksum text not null,
        applied_at timestamptz not null default now()
      )`);
    const applied = await appliedMigrations(client);
    const known = knownMigrations();
    checkHistory(known, applied);
    const pending = known.slice(applied.length);
    for (const migration of pending) {
      const begun = performance.now();
      await apply(client, migration);
      onApplied(migration.name, Math.round(performance.now() - begun));
    }
    await createInstance(client);
    await prepareRequestRole(client);
    return pending.map(({ name }) => name);
  } finally {
    await client.end();
  }
}

/** Whether a migrator has been here: false for an empty database and for one of another program. */
export async function isMigrated(sql: Sql): Promise<boolean> {
  const { rows } = await sql.query<{ migrated: boolean }>(
    "select to_regclass('instance') is not null and to_regclass('schema_migrations') is not null as migrated",
  );
  return rows[0]!.migrated;
}

/** Is the schema the one of this build? */
export async function isSchemaCurrent(sql: Sql): Promise<boolean> {
  const applied = await appliedMigrations(sql);
  return applied.length === latestMigration;
}

const latestMigration = knownMigrations().length;

interface AppliedMigration {
  number: number;
  name: string;
  checksum: string;
}

async function appliedMigrations(sql: Sql): Promise<AppliedMigration[]> {
  const { rows } = await sql.query<AppliedMigration & pg.QueryResultRow>(
    'select number, name, checksum from schema_migrations order by number',
  );
  return rows;
}

function checkHistory(known: Migration[], applied: AppliedMigration[]): void {
  if (applied.length > known.length) {
    throw new ExplainedError(
      `the database was migrated by a newer Sandkeep (to ${applied.at(-1)!.name}): use that release or a later one`,
    );
  }
  for (const [index, { name, checksum }] of applied.entries()) {
    const migration = known[index]!;
    if (migration.checksum !== checksum) {
      throw new ExplainedError(
        `the database has ${name}, which is not the migration ${migration.name} of this release: restore a backup or use the release that made it`,
      );
    }
  }
}

/** Beside a release that goes on working a migration may be ended to resolve a deadlock, or give way to who holds a lock for long. */
const ATTEMPTS = 30;
const PAUSE_MS = 1_000;
const LOCK_NOT_AVAILABLE = '55P03';

async function apply(client: pg.Client, migration: Migration, attempt = 1): Promise<void> {
  const { number, name, text, checksum } = migration;
  await client.query('begin');
  try {
    await client.query(text);
    await grantMigrated(client);
    await client.query('insert into schema_migrations (number, name, checksum) values ($1, $2, $3)', [
      number,
      name,
      checksum,
    ]);
    await client.query('commit');
  } catch (cause) {
    await client.query('rollback').catch(() => undefined);
    const state = sqlState(cause);
    const gaveWay = state === LOCK_NOT_AVAILABLE;
    if ((state === DEADLOCK || gaveWay) && attempt < ATTEMPTS) {
      if (gaveWay) await sleep(PAUSE_MS);
      return apply(client, migration, attempt + 1);
    }
    const hint = gaveWay
      ? ': something that takes long is in its way, such as an export; start again after it'
      : '';
    throw new ExplainedError(`migration ${name} failed: ${(cause as Error).message}${hint}`, { cause });
  }
}
