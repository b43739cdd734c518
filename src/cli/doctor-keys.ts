import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { describeEventKeys, eventKeySourceOf, findEventKeys } from '../audit/log/signing-key.js';
import type { Config } from '../config/options.js';
import { findDataDirectory, hasCluster } from '../db/embedded/directory.js';
import { describeSource, findKeyring, keySourceOf } from '../secrets/key-file.js';
import type { CommonOptions } from './command.js';
import type { Finding } from '../engine/finding.js';
import type { StoredInstallation } from './doctor-installation.js';

export interface KeyOptions extends CommonOptions, Pick<Config, 'secretKeys' | 'secretKeysFile'> {}

type KeyFinding = Omit<Finding, 'check'>;

/**
 * Compares the keys of this machine with those that the database names. Also names each key file that a dump of an
 * external database lacks. `stored`: undefined where the database does not run.
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
  if (options.databaseUrl === undefined) {
    return { state: 'ok', found: `${compared}; "sandkeep backup" contains them` };
  }
  return {
    state: 'missing',
    found: `${compared}; a dump of the database alone does not contain ${files.join(' and ')}, "sandkeep backup" does`,
    remedy: 'sandkeep backup <path>',
  };
}

function broken(facts: readonly string[]): KeyFinding {
  return {
    state: 'broken',
    found: facts.join('; '),
    remedy:
      'put the file back from a backup that "sandkeep backup" made (docs/backups.md#a-missing-key-file)',
  };
}

function isCreated({ dataDir, databaseUrl }: KeyOptions): boolean {
  if (databaseUrl !== undefined) return false;
  const directory = findDataDirectory(dataDir);
  return directory !== undefined && hasCluster(directory);
}
