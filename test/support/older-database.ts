import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import { inject } from 'vitest';
import { connectionConfig, openPool, type Address, type PgPool } from '../../src/db/pool.js';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { withDatabase } from './database.js';

const FOLDER = join(PACKAGE_ROOT, 'migrations');

/** Runs `work` with a database of an earlier release, with the migrations up to number `last`, and drops it. */
export async function withOlderDatabase(
  last: number,
  work: (address: Address, pool: PgPool, name: string) => Promise<void>,
): Promise<void> {
  const name = `sandkeep_older_${last}_${process.pid}`;
  const admin = new pg.Client(connectionConfig(withDatabase(inject('server'), 'template1')));
  await admin.connect();
  await admin.query(`drop database if exists ${name} with (force)`);
  await admin.query(`create database ${name} template template0`);
  const address = withDatabase(inject('server'), name);
  const pool = openPool(address, () => undefined);
  try {
    await pool.query(
      'create table schema_migrations (number int primary key, name text not null, checksum text not null, applied_at timestamptz not null default now())',
    );
    for (const file of readdirSync(FOLDER).toSorted().slice(0, last)) {
      const text = readFileSync(join(FOLDER, file), 'utf8');
      await pool.query(text);
      await pool.query('insert into schema_migrations values ($1, $2, $3)', [
        Number(file.slice(0, 4)),
        file,
        createHash('sha256').update(text).digest('hex'),
      ]);
    }
    await work(address, pool, name);
  } finally {
    await pool.end();
    await admin.query(`drop database ${name} with (force)`);
    await admin.end();
  }
}
