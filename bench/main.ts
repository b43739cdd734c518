import { Command } from 'commander';
import { dockerSocket } from '../src/cli/options.js';
import { dockerStart } from './docker-start.js';
import { firstStart } from './first-start.js';

await new Command('bench')
  .description('measures the service; every number in docs/performance.md comes from here')
  .addCommand(
    new Command('first-start')
      .description('from starting the program to the first answered request, on an empty directory and again')
      .option('--rounds <n>', 'how often', Number, 5)
      .action(({ rounds }: { rounds: number }) => firstStart(rounds)),
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
