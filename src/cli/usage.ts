import { Option, type Command } from 'commander';
import { once } from 'node:events';
import type { Transaction } from '../db/transaction.js';
import { inTransaction } from '../db/transaction.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now } from '../lib/instant.js';
import { inUnits, sumOf, type PriceBook, type Quantities } from '../prices/price.js';
import { loadPriceBook } from '../prices/price-book.js';
import { sandboxBreakdown } from '../usage/breakdown.js';
import { checkFocus, FOCUS_HEADER, sandboxCharges, storageCharges } from '../usage/focus-report.js';
import { FOCUS_VERSION } from '../usage/focus-columns.js';
import { REPORT_FORMATS, type Format, type RowFormat, type UsageFilter } from '../usage/queries.js';
import { sandboxTotals, type SandboxTotal } from '../usage/summary-queries.js';
import { totalsByDay } from '../usage/summary.js';
import { readWindow, type Window } from '../usage/window.js';
import { tableCommand, withDatabase, type CommonOptions } from './command.js';
import { withConfig } from './config-options.js';
import { explained } from './explained.js';
import { namedOrg } from './named-org.js';
import { table } from './table.js';

interface UsageOptions extends CommonOptions {
  org: string;
  since?: string;
  until?: string;
  csv?: true;
  format?: RowFormat;
  priceBook?: string;
}

/** In characters: the longest bar, and the other columns of its line. */
const BAR = 40;
const BESIDE_BAR = 45;
const MOST_SHOWN = 20;

export function usageCommand(): Command {
  return withConfig(tableCommand('usage'), ['priceBook'])
    .description('show the usage of an organization by sandbox and by UTC day')
    .requiredOption('--org <slug>', 'the organization')
    .option('--since <time>', 'from this UTC date or date-time on (default: the current UTC month)')
    .option('--until <time>', 'until before this UTC date or date-time (default: now)')
    .option('--csv', 'print CSV: a line for each sandbox and day')
    .addOption(
      new Option(
        '--format <format>',
        `json and csv print the same as --json and --csv; focus prints CSV with the columns of FOCUS ${FOCUS_VERSION}, for sandboxes and volumes`,
      ).choices(REPORT_FORMATS),
    )
    .action(async (options: UsageOptions) => {
      const format = chosenFormat(options);
      const window = windowOf(options);
      const book = format === 'focus' ? focusBook(window, options) : undefined;
      await withDatabase(options, 'usage', async (pool) => {
        const scope = { orgId: await namedOrg(pool, options.org), sandboxIds: undefined, labels: {} };
        await inTransaction(
          pool,
          async (tx) => {
            await tx.query('set transaction isolation level repeatable read, read only');
            if (book) await printCharges(tx, scope, window, book);
            else if (format === 'json' || format === 'csv') await printRows(tx, scope, window, format);
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

function chosenFormat({ json, csv, format }: UsageOptions): RowFormat | undefined {
  const chosen = [json && 'json', csv && 'csv', format].filter((each) => each !== undefined);
  if (chosen.length > 1) throw new ExplainedError('choose one of --json, --csv and --format');
  return chosen[0] as RowFormat | undefined;
}

function focusBook(window: Window, { priceBook }: UsageOptions): PriceBook {
  if (priceBook === undefined) {
    throw new ExplainedError(
      '--format focus needs prices: name the price book of the service with --price-book',
    );
  }
  try {
    return checkFocus(window, loadPriceBook(priceBook));
  } catch (error) {
    return explained(error);
  }
}

async function printRows(tx: Transaction, scope: UsageFilter, window: Window, format: Format): Promise<void> {
  for await (const text of sandboxBreakdown(tx, scope, window, format)) await write(text);
  if (format === 'json') await write('\n');
}

async function printCharges(
  tx: Transaction,
  scope: UsageFilter,
  window: Window,
  book: PriceBook,
): Promise<void> {
  await write(FOCUS_HEADER);
  for await (const text of sandboxCharges(tx, scope, window, book)) await write(text);
  for await (const text of storageCharges(tx, scope.orgId, window, book)) await write(text);
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
