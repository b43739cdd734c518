import { Command } from 'commander';
import { counted } from '../lib/counted.js';
import type { Config } from '../config/options.js';
import { withBar } from './backup-progress.js';
import { databaseCommand, print, type CommonOptions } from './command.js';
import { withConfig } from './config-options.js';

interface MoveCommandOptions
  extends CommonOptions, Pick<Config, 'volumesDir' | 'secretKeys' | 'secretKeysFile'> {
  to: string;
}

export function databaseCommands(): Command {
  return new Command('database')
    .description('move the database of a stopped service')
    .addCommand(moveCommand())
    .addCommand(reopenCommand());
}

function moveCommand(): Command {
  return withConfig(databaseCommand('move'), ['volumesDir', 'secretKeys', 'secretKeysFile'])
    .description(
      'copy the database of a stopped service to another one, verify the copy, and close the old database, which stays as it is',
    )
    .requiredOption(
      '--to <url>',
      'an empty PostgreSQL database, or "embedded" for the data directory; a password in ~/.pgpass is not shown by "ps"',
    )
    .action(async (options: MoveCommandOptions) => {
      const { moveDatabase, EMBEDDED } = await import('../backup/move.js');
      const { databaseUrl, to } = options;
      const moved = await withBar(undefined, (bar) =>
        moveDatabase({ places: options, databaseUrl, to, onTable: (name) => bar.name(name) }),
      );
      const { rows, verification, setAside, foreign } = moved;
      const next =
        to === EMBEDDED
          ? 'Start the service without --database-url and DATABASE_URL.'
          : 'Start the service with that URL as DATABASE_URL.';
      print(
        options,
        {
          rows,
          events_verified: verification.events,
          notes: verification.notes,
          set_aside: setAside ?? null,
          not_moved: foreign,
        },
        [
          `Moved ${counted(rows, 'row')}, and verified them and ${counted(verification.events, 'event')}. ${next}`,
          'The old database is closed, and unchanged otherwise.',
          ...(setAside === undefined
            ? []
            : [`An older database is now ${setAside}: delete it when you like.`]),
          ...foreign.map((name) => `NOT moved: the table ${name}, which is not one of Sandkeep.`),
          ...verification.notes.map((note) => `NOTE: ${note}`),
        ].join('\n'),
      );
    });
}

function reopenCommand(): Command {
  return databaseCommand('reopen')
    .description('use the database again that a move has closed; its copy must no longer be in use')
    .action(async (options: CommonOptions) => {
      const { reopenDatabase } = await import('../backup/move.js');
      const closed = await reopenDatabase(options);
      print(options, { closed }, closed === null ? 'It was not closed.' : 'It is open again.');
    });
}
