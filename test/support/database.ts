import pg from 'pg';
import { connectionConfig, type Address } from '../../src/db/pool.js';

/** Another database on the same server. A URL can name the socket folder of an embedded server. */
export function withDatabase(address: Address, name: string): Address {
  if ('socket' in address) {
    return { url: `postgres://sandkeep@/${name}?host=${encodeURIComponent(address.socket)}` };
  }
  const url = new URL(address.url);
  url.pathname = `/${name}`;
  return { url: url.toString() };
}

let count = 0;

/** Creates a migrated, empty database. */
export async function cloneTemplate(
  server: Address,
): Promise<{ address: Address; drop: () => Promise<void> }> {
  count += 1;
  const name = `sandkeep_test_${process.pid}_${count}`;
  // The other strategy writes every page to the log too.
  await administer(server, `create database ${name} template sandkeep_template strategy file_copy`);
  return {
    address: withDatabase(server, name),
    drop: () => administer(server, `drop database if exists ${name} with (force)`),
  };
}

/** Creates an empty database without tables. */
export async function cloneEmpty(server: Address): Promise<{ address: Address; drop: () => Promise<void> }> {
  count += 1;
  const name = `sandkeep_empty_${process.pid}_${count}`;
  await administer(server, `create database ${name} template template0`);
  return {
    address: withDatabase(server, name),
    drop: () => administer(server, `drop database if exists ${name} with (force)`),
  };
}

async function administer(server: Address, statement: string): Promise<void> {
  const admin = new pg.Client(connectionConfig(withDatabase(server, 'template1')));
  await admin.connect();
  // Two files may clone at once, but PostgreSQL lets only one session use a template.
  await admin.query('select pg_advisory_lock(1)');
  await admin.query(statement);
  await admin.end();
}
