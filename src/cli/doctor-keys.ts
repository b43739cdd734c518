import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { otherKeys } from '../audit/log/chain-queries.js';
import { describeEventKeys, eventKeySourceOf, findEventKeys } from '../audit/log/signing-key.js';
import { findDataDirectory, hasCluster } from '../db/embedded/directory.js';
import { askOwner } from '../db/embedded/ownership.js';
import { isMigrated } from '../db/migrate.js';
import { openForCommand } from '../db/open.js';
import { openPool, type Address } from '../db/pool.js';
import { describeSource, findKeyring, keySourceOf } from '../secrets/key-file.js';
import { sealingKeys } from '../secrets/queries.js';
import type { CommonOptions } from './command.js';

export interface KeyOptions extends CommonOptions {
  secretKeys?: string;
  secretKeysFile?: string;
}

interface KeyFinding {
  state: 'ok' | 'missing' | 'broken';
  found: string;
}

/**
 * Compares the keys of this machine with those that the database names, and says which copies a backup of the database does not
 * contain. It cannot see copies elsewhere. A database that does not run is not started for it.
 */
export async function inspectKeys(options: KeyOptions): Promise<KeyFinding> {
  const [secrets, events] = [keySourceOf(options), eventKeySourceOf(options)];
  const keyring = findKeyring(secrets);
  const eventKeys = findEventKeys(events);
  const named = await namedKeys(options);
  if (named) {
    const lost = [
      ...named.secrets
        .filter((id) => !keyring?.has(id))
        .map((id) => `the key ${id}, which seals secrets, is not in ${describeSource(secrets)}`),
      ...named.events
        .filter((id) => !eventKeys?.known.some((key) => key.id === id))
        .map((id) => `the key ${id}, which signs the event log, is not in ${describeEventKeys(events)}`),
    ];
    if (lost.length > 0) return broken(lost);
  } else if (isCreated(options)) {
    const absent = [
      ...(keyring ? [] : [`the keys that seal secrets are not in ${describeSource(secrets)}`]),
      ...(eventKeys ? [] : [`the keys that sign the event log are not in ${describeEventKeys(events)}`]),
    ];
    if (absent.length > 0) return broken(absent);
  }
  const files = [secrets, events].flatMap((source) =>
    'file' in source && existsSync(source.file) ? [resolve(source.file)] : [],
  );
  const compared = named
    ? 'the keys that the database names are here'
    : 'not compared with the database, which does not run';
  if (files.length === 0) {
    const given = 'keys' in secrets && 'keys' in events;
    return { state: 'ok', found: given ? `${compared}; given by the environment` : 'none created yet' };
  }
  const outside = files.filter((file) => !isInBackup(file, options));
  if (outside.length === 0)
    return { state: 'ok', found: `${compared}; a copy of the data directory contains them` };
  return {
    state: 'missing',
    found: `${compared}; a backup of the database does not contain ${outside.join(' and ')}: keep copies elsewhere, which doctor cannot see`,
  };
}

function broken(facts: readonly string[]): KeyFinding {
  return { state: 'broken', found: `${facts.join('; ')}: restore the file from a copy (docs/backups.md)` };
}

/** The embedded database lies in the data directory, whose copy is its backup. */
function isInBackup(file: string, { dataDir, databaseUrl }: KeyOptions): boolean {
  return databaseUrl === undefined && file.startsWith(`${resolve(dataDir)}/`);
}

function isCreated({ dataDir, databaseUrl }: KeyOptions): boolean {
  if (databaseUrl !== undefined) return false;
  const directory = findDataDirectory(dataDir);
  return directory !== undefined && hasCluster(directory);
}

/** Undefined where there is no database to ask. */
async function namedKeys(options: KeyOptions): Promise<{ secrets: string[]; events: string[] } | undefined> {
  const address = await runningDatabase(options);
  if (!address) return undefined;
  const pool = openPool(address, () => undefined);
  try {
    if (!(await isMigrated(pool))) return undefined;
    return { secrets: await sealingKeys(pool), events: await otherKeys(pool, []) };
  } finally {
    await pool.end();
  }
}

async function runningDatabase({ dataDir, databaseUrl }: KeyOptions): Promise<Address | undefined> {
  if (databaseUrl !== undefined)
    return (await openForCommand({ databaseUrl, dataDir, command: 'doctor' })).address;
  const directory = findDataDirectory(dataDir);
  const owner = directory && (await askOwner(directory));
  return owner?.command === 'serve' ? { socket: directory!.run } : undefined;
}
