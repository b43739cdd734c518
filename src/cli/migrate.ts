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
        const applied = await migrate(database.address);
        print(
          options,
          { applied },
          applied.length === 0
            ? 'the schema is current'
            : applied.map((name) => `applied ${name}`).join('\n'),
        );
      } finally {
        await database.close();
      }
    });
}
