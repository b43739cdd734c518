import { resolve } from 'node:path';
import pg from 'pg';
import { findBinaries } from '../db/embedded/binaries.js';
import { checkCreatable, findDataDirectory, hasCluster, requireWritable } from '../db/embedded/directory.js';
import { chooseIdentity } from '../db/embedded/identity.js';
import { askOwner } from '../db/embedded/ownership.js';
import { openForCommand } from '../db/open.js';
import { connectionConfig, makeClient } from '../db/pool.js';
import { canServe, mayMakeRole, REQUEST_ROLE } from '../db/request-role.js';
import { ExplainedError } from '../lib/explained-error.js';
import type { CommonOptions } from './command.js';
import type { Finding } from '../engine/finding.js';

const OLDEST_POSTGRES = 15;
const check = 'database';

export async function checkDatabase({ databaseUrl, dataDir }: CommonOptions): Promise<Finding[]> {
  return databaseUrl === undefined ? [await checkEmbedded(dataDir)] : checkExternal(databaseUrl, dataDir);
}

async function checkExternal(databaseUrl: string, dataDir: string): Promise<Finding[]> {
  let client: pg.Client | undefined;
  try {
    const { address } = await openForCommand({ databaseUrl, dataDir, command: 'doctor' });
    client = makeClient(connectionConfig(address));
    await client.connect();
    const { rows } = await client.query<{ server_version: string }>('show server_version');
    const version = rows[0]!.server_version;
    if (Number.parseInt(version, 10) < OLDEST_POSTGRES) {
      const found = `external PostgreSQL ${version}: ${OLDEST_POSTGRES} or later is needed`;
      return [{ check, state: 'broken', found, remedy: 'upgrade it with pg_upgrade' }];
    }
    const server: Finding = { check, state: 'ok', found: `external PostgreSQL ${version}` };
    return [server, await checkRole(client)];
  } catch (error) {
    const remedy = 'psql "$DATABASE_URL", until it connects';
    return [{ check, state: 'broken', found: explainUnusable(error), remedy }];
  } finally {
    await client?.end().catch(() => undefined);
  }
}

/** Without the role the database does not keep organizations apart, and the service serves all the same. */
async function checkRole(client: pg.Client): Promise<Finding> {
  const { rows } = await client.query<{ name: string }>('select current_user as name');
  const name = rows[0]!.name;
  if (await canServe(client)) return { check: 'role', state: 'ok', found: `${name} has ${REQUEST_ROLE}` };
  if (await mayMakeRole(client)) {
    return { check: 'role', state: 'ok', found: `${name} creates ${REQUEST_ROLE} at the first start` };
  }
  return {
    check: 'role',
    state: 'missing',
    found: `${name} neither has the role ${REQUEST_ROLE} nor may create it, so that the database does not keep organizations apart`,
    remedy: `as a superuser: create role ${REQUEST_ROLE} nologin; grant ${REQUEST_ROLE} to ${pg.escapeIdentifier(name)};`,
  };
}

async function checkEmbedded(dataDir: string): Promise<Finding> {
  try {
    const binaries = findBinaries();
    const directory = findDataDirectory(dataDir);
    if (!directory) {
      checkCreatable(dataDir);
      return { check, state: 'ok', found: `embedded PostgreSQL in ${resolve(dataDir)}; not created yet` };
    }
    requireWritable(directory.root);
    const identity = chooseIdentity(binaries, directory.root);
    const owner = await askOwner(directory);
    const use = owner
      ? `in use by "sandkeep ${owner.command}" (process ${owner.pid})`
      : hasCluster(directory)
        ? 'not running'
        : 'not created yet';
    const found = `embedded PostgreSQL in ${directory.root}, as ${identity.description}; ${use}`;
    return { check, state: 'ok', found };
  } catch (error) {
    const remedy = `sudo install -d -o "$USER" -m 0711 ${resolve(dataDir)}, or another --data-dir`;
    return { check, state: 'broken', found: (error as Error).message, remedy };
  }
}

function explainUnusable(error: unknown): string {
  const { message, code } = error as NodeJS.ErrnoException;
  // An error of several addresses has a code and no message.
  return error instanceof ExplainedError
    ? message
    : `cannot use the database of --database-url: ${message || code}`;
}
