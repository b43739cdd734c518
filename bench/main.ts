import { Command } from 'commander';
import { firstStart } from './first-start.js';

await new Command('bench')
  .description('measures the service; every number in docs/performance.md comes from here')
  .addCommand(
    new Command('first-start')
      .description('from starting the program to the first answered request, on an empty directory and again')
      .option('--rounds <n>', 'how often', Number, 5)
      .action(({ rounds }: { rounds: number }) => firstStart(rounds)),
  )
  .parseAsync();
