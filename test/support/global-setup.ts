import { rmSync } from 'node:fs';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { migrate } from '../../src/db/migrate.js';
import { openForServer } from '../../src/db/open.js';
import { connectionConfig, type Address } from '../../src/db/pool.js';
import { withDatabase } from './database.js';
import { hasDocker, makeImage } from './docker.js';
import { makeMemoryFolder } from './memory-folder.js';

declare module 'vitest' {
  interface ProvidedContext {
    /** The server of this test run; each test file clones a database from the template. */
    server: Address;
  }
}

const TEMPLATE = 'sandkeep_template';

/**
 * Starts PostgreSQL for the run, with a migrated template. Default: embedded; SANDKEEP_TEST_DATABASE_URL names
 * another server.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const dataDir = makeMemoryFolder();
  const databaseUrl = process.env['SANDKEEP_TEST_DATABASE_URL'];
  const database = await openForServer({
    databaseUrl,
    dataDir,
    command: 'test',
    // Four files at once, some with several services of up to 35 connections each. Nobody keeps the data.
    settings: { fsync: 'off', full_page_writes: 'off', max_connections: '400' },
    onCrash: (error) => console.error('the test database ended', error),
  });
  const admin = new pg.Client(connectionConfig(withDatabase(database.address, 'template1')));
  await admin.connect();
  const { rows } = await admin.query<{ server_version: string }>('show server_version');
  console.log(
    `tests run on Node ${process.versions.node} and ${databaseUrl === undefined ? 'embedded' : 'external'} PostgreSQL ${rows[0]!.server_version}`,
  );
  await admin.query(`drop database if exists ${TEMPLATE}`);
  await admin.query(`create database ${TEMPLATE}`);
  await admin.end();
  await migrate(withDatabase(database.address, TEMPLATE));
  // Before all files, since they share it.
  if (hasDocker) makeImage();
  project.provide('server', database.address);
  return async () => {
    await database.close();
    rmSync(dataDir, { recursive: true, force: true });
  };
}
