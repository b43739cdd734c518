import { Command } from 'commander';
import { operator } from '../audit/events/actor.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now } from '../lib/instant.js';
import { LIMITS, SWITCHES } from '../quotas/limits.js';
import { parseQuotas, setQuotas } from '../quotas/set.js';
import { showQuotas } from '../quotas/show.js';
import { print, tableCommand, withDatabase, type CommonOptions } from './command.js';
import { namedOrg } from './named-org.js';
import { table } from './table.js';

export function quotaCommand(): Command {
  return new Command('quota')
    .description('quotas: the limits of an organization')
    .addCommand(showCommand())
    .addCommand(setCommand());
}

function showCommand(): Command {
  return tableCommand('show')
    .description('show the quotas of an organization and what is in use')
    .requiredOption('--org <slug>', 'the organization')
    .action(async (options: CommonOptions & { org: string }) => {
      const quotas = await withDatabase(options, 'quota show', async (pool) =>
        showQuotas(pool, await namedOrg(pool, options.org), now()),
      );
      if (!quotas) throw new ExplainedError('the organization no longer exists: see "sandkeep org list"');
      const rows = Object.entries(quotas).map(([name, value]) => [name, shown(value)]);
      print(options, quotas, table(['QUOTA', 'VALUE'], rows, options));
    });
}

function setCommand(): Command {
  return tableCommand('set')
    .description('change quotas of an organization: max_sandboxes=10 max_vcpus_per_sandbox=unlimited')
    .requiredOption('--org <slug>', 'the organization')
    .argument('<name=value...>', `the quotas to change, of ${[...LIMITS, ...SWITCHES].join(', ')}`)
    .action(async (words: string[], options: CommonOptions & { org: string }) => {
      const wanted = parseQuotas(words);
      const change = await withDatabase(options, 'quota set', async (pool) =>
        setQuotas(pool, await namedOrg(pool, options.org), wanted, operator('quota set')),
      );
      const rows = Object.entries(change.after).map(([name, value]) => [
        name,
        shown(change.before[name as keyof typeof change.before]),
        shown(value),
      ]);
      print(
        options,
        change,
        rows.length === 0 ? 'nothing has changed' : table(['QUOTA', 'BEFORE', 'NOW'], rows, options),
      );
    });
}

function shown(value: number | boolean | null | undefined): string {
  return value === null ? 'unlimited' : String(value);
}
