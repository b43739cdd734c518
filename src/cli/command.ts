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
import { escapeControlsInLines } from '../lib/escape-controls.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now } from '../lib/instant.js';
import { withConfig } from './config-options.js';
import { OperatorCommand, common } from './operator-command.js';
import { json, wide } from './options.js';

export const COMMON_NAMES = ['config', 'dataDir', 'databaseUrl', 'eventKeys', 'eventKeysFile'] as const;

/** The options of every command that uses the database. */
export interface CommonOptions extends Pick<Config, (typeof COMMON_NAMES)[number]> {
  json?: true;
  wide?: true;
}

export function databaseCommand(name: string): Command {
  return withConfig(new OperatorCommand(name), COMMON_NAMES, { isCommon: true }).addOption(common(json()));
}

export function tableCommand(name: string): Command {
  return databaseCommand(name).addOption(common(wide()));
}

/**
 * Opens the database, together with a running service if there is one, migrates it, and closes it after `work`. Throws
 * ExplainedError without an installation. `command`: the name of the owner that other processes see meanwhile.
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
 * The keys that mark the events of a command. Only an embedded database without a key gets a new one: a second key
 * would be unknown to the service. Without the keys of the service the command works, and warns.
 */
async function writerKeys(pool: Pool, options: CommonOptions): Promise<EventKeys | undefined> {
  const source = eventKeySourceOf(options);
  const noted = await registeredKeyIds(pool);
  const isOwn = noted.length === 0 && options.databaseUrl === undefined;
  const keys = isOwn ? openEventKeys(source)() : findEventKeys(source);
  if (keys ? await areOfLog(pool, keys, noted) : noted.length === 0) return keys;
  process.stderr.write(
    `sandkeep: ${describeEventKeys(source)} does not have the event keys of the service: "sandkeep events verify" will report the events of this command as forged\n`,
  );
  return undefined;
}

async function areOfLog(pool: Pool, keys: EventKeys, noted: readonly string[]): Promise<boolean> {
  // The service accepts marks of a replaced key for a while.
  if (noted.includes(keys.current.id)) return true;
  try {
    await registerKey(pool, keys, now());
    return true;
  } catch (error) {
    if (error instanceof BrokenLog) return false;
    throw error;
  }
}

/** The text may have names that callers chose, and words of an archive. */
export function print(options: { json?: true }, result: unknown, text: string): void {
  process.stdout.write(options.json ? `${JSON.stringify(result)}\n` : `${escapeControlsInLines(text)}\n`);
}
