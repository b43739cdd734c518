import { existsSync } from 'node:fs';
import { resolve, sep } from 'node:path';
import { describeEventKeys, eventKeySourceOf, findEventKeys } from '../audit/log/signing-key.js';
import type { Config } from '../config/options.js';
import { findDataDirectory, hasCluster } from '../db/embedded/directory.js';
import { describeSource, findKeyring, keySourceOf } from '../secrets/key-file.js';
import type { CommonOptions } from './command.js';
import type { Finding } from './doctor-finding.js';
import type { StoredInstallation } from './doctor-installation.js';

export interface KeyOptions extends CommonOptions, Pick<Config, 'secretKeys' | 'secretKeysFile'> {}

type KeyFinding = Omit<Finding, 'check'>;

/**
 * Compares the keys of this machine with those that the database names. Also names each key file that is outside a backup of the
 * database. `stored`: undefined where the database does not run.
 */
export function inspectKeys(options: KeyOptions, stored: StoredInstallation | undefined): KeyFinding {
  const [secrets, events] = [keySourceOf(options), eventKeySourceOf(options)];
  const keyring = findKeyring(secrets);
  const eventKeys = findEventKeys(events);
  if (stored) {
    const lost = [
      ...stored.keys.secrets
        .filter((id) => !keyring?.has(id))
        .map((id) => `the key ${id}, which seals secrets, is not in ${describeSource(secrets)}`),
      ...stored.keys.events
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
  const compared = stored
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
    remedy: `cp -p ${outside.join(' ')} <a safe place>`,
  };
}

function broken(facts: readonly string[]): KeyFinding {
  return {
    state: 'broken',
    found: facts.join('; '),
    remedy: 'restore the file from a copy (docs/backups.md)',
  };
}

/** A copy of the data directory is the backup of the embedded database. */
function isInBackup(file: string, { dataDir, databaseUrl }: KeyOptions): boolean {
  return databaseUrl === undefined && file.startsWith(`${resolve(dataDir)}${sep}`);
}

function isCreated({ dataDir, databaseUrl }: KeyOptions): boolean {
  if (databaseUrl !== undefined) return false;
  const directory = findDataDirectory(dataDir);
  return directory !== undefined && hasCluster(directory);
}
