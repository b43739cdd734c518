import type { Command } from 'commander';
import { once } from 'node:events';
import type { Transaction } from '../db/transaction.js';
import { inTransaction } from '../db/transaction.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now } from '../lib/instant.js';
import { inUnits, sumOf, type Quantities } from '../prices/price.js';
import { sandboxBreakdown } from '../usage/breakdown.js';
import type { UsageFilter } from '../usage/queries.js';
import { sandboxTotals, type SandboxTotal } from '../usage/summary-queries.js';
import { totalsByDay } from '../usage/summary.js';
import { readWindow, type Window } from '../usage/window.js';
import { tableCommand, withDatabase, type CommonOptions } from './command.js';
import { explained } from './explained.js';
import { namedOrg } from './named-org.js';
import { table } from './table.js';

interface UsageOptions extends CommonOptions {
  org: string;
  since?: string;
  until?: string;
  csv?: true;
}

/** In characters: the longest bar, and the other columns of its line. */
const BAR = 40;
const BESIDE_BAR = 45;
const MOST_SHOWN = 20;

export function usageCommand(): Command {
  return tableCommand('usage')
    .description('show the usage of an organization by sandbox and by UTC day')
    .requiredOption('--org <slug>', 'the organization')
    .option('--since <time>', 'from this UTC date or date-time on (default: the current UTC month)')
    .option('--until <time>', 'until before this UTC date or date-time (default: now)')
    .option('--csv', 'print CSV: a line for each sandbox and day')
    .action(async (options: UsageOptions) => {
      if (options.json && options.csv) throw new ExplainedError('choose one of --json and --csv');
      const window = windowOf(options);
      await withDatabase(options, 'usage', async (pool) => {
        const scope = { orgId: await namedOrg(pool, options.org), sandboxIds: undefined, labels: {} };
        await inTransaction(
          pool,
          async (tx) => {
            await tx.query('set transaction isolation level repeatable read, read only');
            if (options.json || options.csv) await printRows(tx, scope, window, options);
            else await printPicture(tx, scope.orgId, window, options);
          },
          { unhurried: true },
        );
      });
    });
}

function windowOf({ since, until }: UsageOptions): Window {
  try {
    return readWindow(
      { ...(since === undefined ? {} : { since }), ...(until === undefined ? {} : { until }) },
      now(),
    );
  } catch (error) {
    return explained(error);
  }
}

async function printRows(
  tx: Transaction,
  scope: UsageFilter,
  window: Window,
  { json }: UsageOptions,
): Promise<void> {
  for await (const text of sandboxBreakdown(tx, scope, window, json ? 'json' : 'csv')) await write(text);
  if (json) await write('\n');
}

async function printPicture(
  tx: Transaction,
  orgId: string,
  window: Window,
  options: UsageOptions,
): Promise<void> {
  const days = await totalsByDay(tx, orgId, window);
  if (days.size === 0) return write('no usage\n');
  const { totals, count } = await sandboxTotals(tx, orgId, window, MOST_SHOWN);
  if (count > 0) {
    const shown = totals.map(({ name, used }) => [name, ...hours(used)]);
    const more = count > totals.length ? [[`(${count - totals.length} more)`, '', '', '']] : [];
    const all = ['all', ...hours(sumOf([...days.values()]))];
    const head = ['SANDBOX', 'vCPU HOURS', 'GiB HOURS MEMORY', 'GiB HOURS DISK'];
    await write(`${table(head, [...shown, ...more, all], options)}\n\n`);
  }
  await write(`${chart(days, options)}\n`);
}

function hours(used: SandboxTotal['used']): string[] {
  return (['vcpu_hour', 'memory_gib_hour', 'disk_gib_hour'] as const).map((metric) =>
    inUnits(metric, used[metric]).toFixed(2),
  );
}

function chart(days: ReadonlyMap<string, Quantities>, options: UsageOptions): string {
  const rows = [...days].map(([day, quantities]) => ({
    day,
    vcpus: inUnits('vcpu_hour', quantities.vcpu_hour),
    storage: inUnits('storage_gib_hour', quantities.storage_gib_hour),
  }));
  const most = Math.max(...rows.map(({ vcpus }) => vcpus));
  const longest = Math.max(10, Math.min(BAR, (process.stdout.columns ?? Infinity) - BESIDE_BAR));
  const bar = (value: number) =>
    value === 0 ? '' : '█'.repeat(Math.max(1, Math.round((value / most) * longest)));
  return table(
    ['DAY', 'GiB HOURS STORAGE', 'vCPU HOURS', ''],
    rows.map(({ day, vcpus, storage }) => [day, storage.toFixed(2), vcpus.toFixed(2), bar(vcpus)]),
    options,
  );
}

/** Waits for a slow reader, so that a pager does not hold a year of usage in memory. */
async function write(text: string): Promise<void> {
  if (!process.stdout.write(text)) await once(process.stdout, 'drain');
}
