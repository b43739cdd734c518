import type { Command } from 'commander';
import { migrate } from '../db/migrate.js';
import { openForCommand } from '../db/open.js';
import { databaseCommand, print, type CommonOptions } from './command.js';

export function migrateCommand(): Command {
  return databaseCommand('migrate')
    .description('bring the database to the schema of this release ("serve" does it by itself)')
    .action(async (options: CommonOptions) => {
      const { dataDir, databaseUrl } = options;
      const database = await openForCommand({ dataDir, databaseUrl, command: 'migrate' }, { create: true });
      try {
        const applied = await migrate(database.address, (name) => {
          if (!options.json) process.stdout.write(`applied ${name}\n`);
        });
        if (options.json || applied.length === 0) print(options, { applied }, 'the schema is current');
      } finally {
        await database.close();
      }
    });
}
