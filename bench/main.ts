import { Command } from 'commander';
import { dockerSocket } from '../src/cli/options.js';
import { auth, organizations } from './arms.js';
import { dockerStart } from './docker-start.js';
import { eventPages } from './event-pages.js';
import { events } from './events.js';
import { firstStart } from './first-start.js';
import { usage } from './usage.js';

await new Command('bench')
  .description('measures the service; every number in docs/performance.md comes from here')
  .addCommand(
    new Command('first-start')
      .description('from starting the program to the first answered request, on an empty directory and again')
      .option('--rounds <n>', 'how often', Number, 5)
      .action(({ rounds }: { rounds: number }) => firstStart(rounds)),
  )
  .addCommand(
    new Command('usage')
      .description('a month of usage: summed over runs, by our route, and by a bare server that has the rows')
      .option('--runs <n,n>', 'sizes of the history', numbers, [1_000, 10_000, 100_000, 1_000_000])
      .option('--rounds <n>', 'how often', Number, 7)
      .option('--year <sandboxes>', 'also a year of so many sandboxes; 0: not', Number, 0)
      .action(({ runs, rounds, year }: { runs: number[]; rounds: number; year: number }) =>
        usage(runs, rounds, year),
      ),
  )
  .addCommand(
    new Command('events')
      .description('concurrent creates with the event log, without it, and with a chain that writers hold')
      .option('--writers <n>', 'at once', Number, 16)
      .option('--creates <n>', 'in each round', Number, 1_000)
      .option('--rounds <n>', 'how often', Number, 5)
      .action(({ writers, creates, rounds }: { writers: number; creates: number; rounds: number }) =>
        events(writers, creates, rounds),
      ),
  )
  .addCommand(
    new Command('event-pages')
      .description('pages of audit events in a small store, and in one with 124 months of history')
      .option('--events <n>', 'of the history', Number, 2_000_000)
      .action(({ events: count }: { events: number }) => eventPages(count)),
  )
  .addCommand(
    new Command('organizations')
      .description('requests with row-level security and without it')
      .option('--requests <n>', 'of each kind', Number, 1_000)
      .action(({ requests }: { requests: number }) => organizations(requests)),
  )
  .addCommand(
    new Command('auth')
      .description('requests with authentication and without it')
      .option('--requests <n>', 'of each kind', Number, 1_000)
      .action(({ requests }: { requests: number }) => auth(requests)),
  )
  .addCommand(
    new Command('docker-start')
      .description('starts on the Docker engine, with a network and without, side by side')
      .option('--rounds <n>', 'how often', Number, 20)
      .addOption(dockerSocket())
      .action(({ rounds, dockerSocket }: { rounds: number; dockerSocket: string }) =>
        dockerStart(dockerSocket, rounds),
      ),
  )
  .parseAsync();

function numbers(text: string): number[] {
  return text.split(',').filter(Boolean).map(Number);
}
