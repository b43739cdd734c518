import { mkdirSync, truncateSync, writeFileSync, chmodSync, chownSync, symlinkSync, linkSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import { inject } from 'vitest';
import { openForServer, type Database } from '../../src/db/open.js';
import { connectionConfig, openPool, type Address, type PgPool } from '../../src/db/pool.js';
import { withDatabase } from './database.js';
import { urlOf } from './cli.js';

let count = 0;

/** A new database without a schema, which is dropped after `work`. */
export async function withEmptyDatabase<T>(work: (url: string, address: Address) => Promise<T>): Promise<T> {
  count += 1;
  const name = `sandkeep_backup_${process.pid}_${count}`;
  const admin = new pg.Client(connectionConfig(withDatabase(inject('server'), 'template1')));
  await admin.connect();
  try {
    await admin.query(`create database ${name} template template0`);
    const address = withDatabase(inject('server'), name);
    return await work(urlOf(address), address);
  } finally {
    await admin.query(`drop database if exists ${name} with (force)`);
    await admin.end();
  }
}

/** The database of an installation whose service does not run. */
export async function atRest<T>(
  place: { dataDir: string; databaseUrl?: string },
  work: (pool: PgPool) => Promise<T>,
): Promise<T> {
  const database: Database = await openForServer({
    databaseUrl: place.databaseUrl,
    dataDir: place.dataDir,
    command: 'test',
    onCrash: () => undefined,
  });
  const pool = openPool(database.address, () => undefined);
  try {
    return await work(pool);
  } finally {
    await pool.end();
    await database.close();
  }
}

async function tablesOf(pool: PgPool): Promise<string[]> {
  const { rows } = await pool.query<{ name: string }>(
    `select relname as name from pg_class
     where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition order by 1`,
  );
  return rows.map(({ name }) => name);
}

/** The rows of a table as sorted texts. */
export async function rowsOf(pool: PgPool, table: string, where = 'true'): Promise<string[]> {
  const { rows } = await pool.query<{ row: string }>(
    `select t::text as row from "${table}" t where ${where} order by 1`,
  );
  return rows.map(({ row }) => row);
}

export async function everyRow(pool: PgPool): Promise<Record<string, string[]>> {
  const found: Record<string, string[]> = {};
  for (const table of await tablesOf(pool)) found[table] = await rowsOf(pool, table);
  return found;
}

/** The positions of the columns that count by themselves. */
export async function positions(pool: PgPool): Promise<unknown[]> {
  const { rows } = await pool.query(
    `select sequencename, last_value::text from pg_sequences where schemaname = 'public' order by 1`,
  );
  return rows;
}

const MIB = 1024 * 1024;

/** Files of every kind that a guest may leave. */
export function fillVolume(data: string): void {
  mkdirSync(join(data, 'deep', 'er'), { recursive: true });
  writeFileSync(join(data, 'deep', 'er', 'file'), 'in the deep');
  writeFileSync(join(data, 'program'), '#!/bin/sh\n', { mode: 0o4755 });
  chmodSync(join(data, 'program'), 0o4755);
  writeFileSync(join(data, 'hole'), 'begin');
  truncateSync(join(data, 'hole'), 64 * MIB);
  linkSync(join(data, 'program'), join(data, 'second-name'));
  symlinkSync('/etc/passwd', join(data, 'out'));
  symlinkSync('deep', join(data, 'in'));
  writeFileSync(Buffer.concat([Buffer.from(join(data, 'name-')), Buffer.from([0xff, 0xfe])]), 'no UTF-8');
  if (process.getuid?.() === 0) chownSync(join(data, 'deep', 'er', 'file'), 1234, 4321);
}
