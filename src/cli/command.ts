import { Command } from 'commander';
import { migrate } from '../db/migrate.js';
import { openForCommand } from '../db/open.js';
import { openPool, type Address, type Pool } from '../db/pool.js';
import { dataDir, databaseUrl, json } from './options.js';

/** What every command takes. */
export interface CommonOptions {
  dataDir: string;
  databaseUrl?: string;
  json?: true;
}

/** A command with the options that choose the database. */
export function databaseCommand(name: string): Command {
  return new Command(name).addOption(dataDir()).addOption(databaseUrl()).addOption(json());
}

/**
 * Opens the database (beside a running server when there is one), brings it to this build's schema, and closes it when
 * `work` is done. `command`: what others who want the data directory are told.
 */
export async function withDatabase<T>(
  options: CommonOptions,
  command: string,
  work: (pool: Pool, address: Address) => Promise<T>,
): Promise<T> {
  const database = await openForCommand({
    databaseUrl: options.databaseUrl,
    dataDir: options.dataDir,
    command,
  });
  try {
    await migrate(database.address);
    const pool = openPool(database.address, () => undefined);
    try {
      return await work(pool, database.address);
    } finally {
      await pool.end();
    }
  } finally {
    await database.close();
  }
}

/** Prints a result: JSON for programs, `text` for people. */
export function print(options: { json?: true }, result: unknown, text: string): void {
  process.stdout.write(options.json ? `${JSON.stringify(result)}\n` : `${text}\n`);
}
