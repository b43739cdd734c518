import { Command } from 'commander';
import { expect, test } from 'vitest';
import { refuseFlags, runtimeOption } from '../../bench/flags.js';

async function parse(...args: string[]): Promise<void> {
  const command = new Command('bench')
    .exitOverride()
    .configureOutput({ writeErr: () => undefined })
    .addOption(runtimeOption('where sandboxes run'))
    .option('--at-once <n>', 'concurrent starts', '8')
    .option('--prepared <n>', 'prepared networks', '8')
    .action((_options: object, parsed: Command) =>
      refuseFlags(parsed, ['atOnce', 'prepared'], 'with --runtime microvm'),
    );
  await command.parseAsync(args, { from: 'user' });
}

test('a benchmark refuses the flags that have no effect, by their names', async () => {
  await expect(parse('--prepared', '8')).rejects.toThrow(
    '--prepared has no effect with --runtime microvm: leave it out',
  );
  await expect(parse('--prepared', '1', '--at-once', '2')).rejects.toThrow(
    '--at-once and --prepared have no effect with --runtime microvm: leave them out',
  );
});

test('a benchmark accepts the defaults of flags that have no effect', async () => {
  await expect(parse('--runtime', 'microvm')).resolves.toBeUndefined();
});

test('a benchmark refuses an unknown runtime', async () => {
  await expect(parse('--runtime', 'kvm')).rejects.toThrow('Allowed choices are docker, microvm');
});
