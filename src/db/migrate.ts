import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type pg from 'pg';
import { ExplainedError } from '../lib/explained-error.js';
import { PACKAGE_ROOT } from '../lib/package-root.js';
import { sleep } from '../lib/sleep.js';
import { ADVISORY_LOCKS } from './advisory-locks.js';
import { createInstance, readClosed } from './instance-queries.js';
import { connectAlone, DEADLOCK, sqlState, type Address, type Sql } from './pool.js';
import { grantMigrated, prepareRequestRole } from './request-role.js';

/** The oldest server version of the tests. */
const OLDEST_SERVER = 150000;

const MIGRATIONS_TABLE = `
  create table if not exists schema_migrations (
    number int primary key,
    name text not null,
    checksum text not null,
    applied_at timestamptz not null default now()
  )`;

const FOLDER = join(PACKAGE_ROOT, 'migrations');

interface Migration {
  number: number;
  name: string;
  text: string;
  checksum: string;
}

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
 * Migrates in any number of processes at once, and returns the applied migrations. Throws ExplainedError for an unknown
 * schema, and for a closed database unless `closed` is its reason.
 */
export async function migrate(
  address: Address,
  onApplied: (name: string, millis: number) => void = () => undefined,
  closed: string | null = null,
): Promise<string[]> {
  // The advisory lock is the session's, and an index build may exceed the statement time-out of the pool.
  const client = await connectAlone(address);
  try {
    // The driver ignores a time-out of 0.
    await client.query('set statement_timeout = 0');
    const { rows } = await client.query<{ server_version_num: string }>('show server_version_num');
    if (Number(rows[0]!.server_version_num) < OLDEST_SERVER) {
      throw new ExplainedError(
        `the server is older than PostgreSQL ${OLDEST_SERVER / 10000}: use a newer one`,
      );
    }
    await client.query('select pg_advisory_lock($1)', [ADVISORY_LOCKS.migrations]);
    await client.query(MIGRATIONS_TABLE);
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
    const reason = await readClosed(client);
    if (reason !== null && reason !== closed) throw new ExplainedError(reason);
    return pending.map(({ name }) => name);
  } finally {
    await client.end();
  }
}

export async function isMigrated(sql: Sql): Promise<boolean> {
  const { rows } = await sql.query<{ migrated: boolean }>(
    "select to_regclass('instance') is not null and to_regclass('schema_migrations') is not null as migrated",
  );
  return rows[0]!.migrated;
}

export async function isSchemaCurrent(sql: Sql): Promise<boolean> {
  const applied = await appliedMigrations(sql);
  return applied.length === latestMigration;
}

const latestMigration = knownMigrations().length;

export interface AppliedMigration {
  number: number;
  name: string;
  checksum: string;
}

/** Throws ExplainedError unless this release knows each of these migrations. */
export function requireKnownMigrations(applied: AppliedMigration[]): void {
  checkHistory(knownMigrations(), applied);
}

/** Creates the schema after the first `count` migrations, in the transaction of `tx`. The database must be empty. */
export async function createSchema(tx: Sql, count: number): Promise<void> {
  await tx.query(MIGRATIONS_TABLE);
  for (const migration of knownMigrations().slice(0, count)) await execute(tx, migration);
}

/** Applies the other migrations, in the transaction of `tx`. */
export async function completeSchema(tx: Sql, count: number): Promise<void> {
  for (const migration of knownMigrations().slice(count)) await execute(tx, migration);
}

export async function appliedMigrations(sql: Sql): Promise<AppliedMigration[]> {
  const { rows } = await sql.query<AppliedMigration & pg.QueryResultRow>(
    'select number, name, checksum from schema_migrations order by number',
  );
  return rows;
}

function checkHistory(known: Migration[], applied: AppliedMigration[]): void {
  if (applied.length > known.length) {
    throw new ExplainedError(
      `the database was migrated by a newer Sandkeep (to ${applied.at(-1)!.name}): install that release or a later one, or restore the backup from before the upgrade`,
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

/** PostgreSQL may cancel a migration to resolve a deadlock with a running release, or a long lock may block it. */
const ATTEMPTS = 30;
const PAUSE_MS = 1_000;
const LOCK_NOT_AVAILABLE = '55P03';

async function apply(client: pg.Client, migration: Migration, attempt = 1): Promise<void> {
  const { name } = migration;
  await client.query('begin');
  try {
    await execute(client, migration);
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

async function execute(sql: Sql, { number, name, text, checksum }: Migration): Promise<void> {
  await sql.query(text);
  await grantMigrated(sql);
  await sql.query('insert into schema_migrations (number, name, checksum) values ($1, $2, $3)', [
    number,
    name,
    checksum,
  ]);
}
