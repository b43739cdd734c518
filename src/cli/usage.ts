import type { Command } from 'commander';
import { once } from 'node:events';
import type { Transaction } from '../db/transaction.js';
import { inTransaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { ExplainedError } from '../lib/explained.js';
import { now } from '../lib/instant.js';
import { sandboxBreakdown } from '../usage/breakdown.js';
import type { Scope } from '../usage/queries.js';
import { sandboxTotals, type SandboxTotal } from '../usage/summary-queries.js';
import { totalsByDay } from '../usage/summary.js';
import { inUnits, type Quantities } from '../usage/price.js';
import { readWindow, type Window } from '../usage/window.js';
import { databaseCommand, withDatabase, type CommonOptions } from './command.js';
import { namedOrg } from './named-org.js';
import { table } from './table.js';

interface UsageOptions extends CommonOptions {
  org: string;
  since?: string;
  until?: string;
  csv?: true;
}

const BAR = 40;
/** Finance wants the file; people want the sandboxes that matter. */
const MOST_SHOWN = 20;

export function usageCommand(): Command {
  return databaseCommand('usage')
    .description('what the sandboxes of an organization used, by sandbox and by UTC day')
    .requiredOption('--org <slug>', 'the organization')
    .option('--since <time>', 'from this UTC date or date-time on (default: the current UTC month)')
    .option('--until <time>', 'up to, and without, this one (default: now)')
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
            else await printPicture(tx, scope.orgId, window);
          },
          { unhurried: true },
        );
      });
    });
}

/** A refusal of the API says what is wrong with a time here, too. */
function windowOf({ since, until }: UsageOptions): Window {
  try {
    return readWindow(
      { ...(since === undefined ? {} : { since }), ...(until === undefined ? {} : { until }) },
      now(),
    );
  } catch (error) {
    if (error instanceof ApiError) throw new ExplainedError(error.message, { cause: error });
    throw error;
  }
}

/** What the API answers, as it comes, however long. */
async function printRows(
  tx: Transaction,
  scope: Scope,
  window: Window,
  { json }: UsageOptions,
): Promise<void> {
  for await (const text of sandboxBreakdown(tx, scope, window, json ? 'json' : 'csv')) await write(text);
  if (json) await write('\n');
}

async function printPicture(tx: Transaction, orgId: string, window: Window): Promise<void> {
  const days = await totalsByDay(tx, orgId, window);
  if (days.size === 0) return write('nothing ran\n');
  const { rows, count } = await sandboxTotals(tx, orgId, window, MOST_SHOWN);
  const shown = rows.map((row) => [row.name, ...hours(quantitiesOf(row))]);
  const more = count > rows.length ? [[`(${count - rows.length} more)`, '', '', '']] : [];
  const sums = [...days.values()].reduce((a, b) => ({
    vcpu_hour: a.vcpu_hour + b.vcpu_hour,
    memory_gib_hour: a.memory_gib_hour + b.memory_gib_hour,
    disk_gib_hour: a.disk_gib_hour + b.disk_gib_hour,
    storage_gib_hour: a.storage_gib_hour + b.storage_gib_hour,
  }));
  const head = ['SANDBOX', 'vCPU HOURS', 'GiB HOURS MEMORY', 'GiB HOURS DISK'];
  await write(`${table(head, [...shown, ...more, ['all', ...hours(sums)]])}\n\n${chart(days)}\n`);
}

function hours(quantities: Quantities): string[] {
  return (['vcpu_hour', 'memory_gib_hour', 'disk_gib_hour'] as const).map((metric) =>
    inUnits(metric, quantities[metric]).toFixed(2),
  );
}

function quantitiesOf({ vcpu, memory, disk }: SandboxTotal): Quantities {
  return {
    vcpu_hour: BigInt(vcpu),
    memory_gib_hour: BigInt(memory),
    disk_gib_hour: BigInt(disk),
    storage_gib_hour: 0n,
  };
}

/** A bar for each day on which something was used; the longest stands for the most. */
function chart(days: ReadonlyMap<string, Quantities>): string {
  const values = [...days].map(([day, { vcpu_hour }]) => [day, inUnits('vcpu_hour', vcpu_hour)] as const);
  const most = Math.max(...values.map(([, value]) => value));
  const rows = values.map(([day, value]) => [
    day,
    value.toFixed(2),
    most === 0 ? '' : '█'.repeat(value === 0 ? 0 : Math.max(1, Math.round((value / most) * BAR))),
  ]);
  return table(['DAY', 'vCPU HOURS', ''], rows);
}

/** Waits for who reads, so that a year of usage is not in memory when a pager shows its first page. */
async function write(text: string): Promise<void> {
  if (!process.stdout.write(text)) await once(process.stdout, 'drain');
}
