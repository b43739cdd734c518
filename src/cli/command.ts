import type { Command } from 'commander';
import { ActiveEventKeys } from '../audit/events/active-keys.js';
import { type EventKeys } from '../audit/events/event-keys.js';
import { registerKey } from '../audit/log/activate-keys.js';
import { registeredKeyIds } from '../audit/log/key-queries.js';
import {
  describeEventKeys,
  eventKeySourceOf,
  findEventKeys,
  openEventKeys,
} from '../audit/log/signing-key.js';
import { BrokenLog } from '../audit/log/verify-head.js';
import type { Config } from '../config/options.js';
import { noInstallation } from '../db/embedded/directory.js';
import { isMigrated, migrate } from '../db/migrate.js';
import { openForCommand } from '../db/open.js';
import { openPool, type Address, type Pool } from '../db/pool.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now } from '../lib/instant.js';
import { withConfig } from './config-options.js';
import { OperatorCommand, common } from './operator-command.js';
import { json, wide } from './options.js';

export const COMMON_NAMES = ['config', 'dataDir', 'databaseUrl', 'eventKeys', 'eventKeysFile'] as const;

/** The options of every command that uses the database. */
export interface CommonOptions extends Pick<Config, (typeof COMMON_NAMES)[number]> {
  json?: true;
  /** Only of commands that print a table. */
  wide?: true;
}

/** A command with the options that choose the database. */
export function databaseCommand(name: string): Command {
  return withConfig(new OperatorCommand(name), COMMON_NAMES, { isCommon: true }).addOption(common(json()));
}

/** The same for a command that prints a table. */
export function tableCommand(name: string): Command {
  return databaseCommand(name).addOption(common(wide()));
}

/**
 * Opens the database (beside a running server when there is one), brings it to this build's schema, and closes it when
 * `work` is done. Throws ExplainedError where there is no installation. `command`: what others who want the data directory
 * are told.
 */
export async function withDatabase<T>(
  options: CommonOptions,
  command: string,
  work: (pool: Pool, address: Address, activeKeys: ActiveEventKeys) => Promise<T>,
): Promise<T> {
  const database = await openForCommand({
    databaseUrl: options.databaseUrl,
    dataDir: options.dataDir,
    command,
  });
  try {
    let keys: Promise<EventKeys | undefined> | undefined;
    const activeKeys = new ActiveEventKeys(() => (keys ??= writerKeys(pool, options)));
    const pool = openPool(database.address, () => undefined, activeKeys.marker);
    try {
      if (!(await isMigrated(pool))) throw withoutInstallation(options);
      await migrate(database.address, (name) =>
        process.stderr.write(`sandkeep: applied migration ${name}\n`),
      );
      return await work(pool, database.address, activeKeys);
    } finally {
      await pool.end();
    }
  } finally {
    await database.close();
  }
}

export function withoutInstallation({ dataDir, databaseUrl }: CommonOptions): ExplainedError {
  return databaseUrl === undefined
    ? noInstallation(dataDir)
    : new ExplainedError(
        'no installation in the database of --database-url; run "sandkeep migrate" with the same URL to create one',
      );
}

/**
 * What marks the events that a command writes; looked for when it writes the first. It makes a key only for a database that is in the
 * data directory, and that has none: any other would be one that nobody knows. Without those of the service a command works as well,
 * and says so.
 */
async function writerKeys(pool: Pool, options: CommonOptions): Promise<EventKeys | undefined> {
  const source = eventKeySourceOf(options);
  const noted = await registeredKeyIds(pool);
  const isOwn = noted.length === 0 && options.databaseUrl === undefined;
  const keys = isOwn ? openEventKeys(source)() : findEventKeys(source);
  if (keys ? await areOfLog(pool, keys, noted) : noted.length === 0) return keys;
  process.stderr.write(
    `sandkeep: the event keys of the service are not in ${describeEventKeys(source)}: "sandkeep events verify" will name what this command does as put in by others\n`,
  );
  return undefined;
}

async function areOfLog(pool: Pool, keys: EventKeys, noted: readonly string[]): Promise<boolean> {
  // Also one that another has replaced: the service takes for a while what it marked.
  if (noted.includes(keys.current.id)) return true;
  try {
    await registerKey(pool, keys, now());
    return true;
  } catch (error) {
    if (error instanceof BrokenLog) return false;
    throw error;
  }
}

/** Prints a result: JSON for programs, `text` for people. */
export function print(options: { json?: true }, result: unknown, text: string): void {
  process.stdout.write(options.json ? `${JSON.stringify(result)}\n` : `${text}\n`);
}
