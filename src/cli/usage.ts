import { Option, type Command } from 'commander';
import { once } from 'node:events';
import type { Transaction } from '../db/transaction.js';
import { inTransaction } from '../db/transaction.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now } from '../lib/instant.js';
import type { PriceBook } from '../prices/price.js';
import { loadPriceBook } from '../prices/price-book.js';
import { sandboxBreakdown } from '../usage/breakdown.js';
import { checkFocus, FOCUS_HEADER, sandboxCharges, storageCharges } from '../usage/focus-report.js';
import { FOCUS_VERSION } from '../usage/focus-columns.js';
import { checkLabelKeys, labelBreakdown } from '../usage/label-report.js';
import { MOST_LABEL_KEYS } from '../usage/label-times.js';
import { REPORT_FORMATS, type Format, type RowFormat, type UsageFilter } from '../usage/queries.js';
import { readWindow, type Window } from '../usage/window.js';
import { tableCommand, withDatabase, type CommonOptions } from './command.js';
import { withConfig } from './config-options.js';
import { explained } from './explained.js';
import { namedOrg } from './named-org.js';
import { usagePicture } from './usage-picture.js';

interface UsageOptions extends CommonOptions {
  org: string;
  since?: string;
  until?: string;
  csv?: true;
  format?: RowFormat;
  priceBook?: string;
  by?: string[];
}

export function usageCommand(): Command {
  return withConfig(tableCommand('usage'), ['priceBook'])
    .description(
      'show the usage of an organization by sandbox or label and by UTC day, and its cost with a price book',
    )
    .requiredOption('--org <slug>', 'the organization')
    .option('--since <time>', 'from this UTC date or date-time on (default: the current UTC month)')
    .option('--until <time>', 'until before this UTC date or date-time (default: now)')
    .addOption(
      new Option(
        '--by <labels>',
        `group by these labels, separated by commas, instead of by sandbox (at most ${MOST_LABEL_KEYS}, such as team,env)`,
      ).argParser(readKeys),
    )
    .option('--csv', 'print CSV: a line for each sandbox, or combination of labels, and day')
    .addOption(
      new Option(
        '--format <format>',
        `json and csv print the same as --json and --csv; focus prints CSV with the columns of FOCUS ${FOCUS_VERSION}, for sandboxes and volumes`,
      ).choices(REPORT_FORMATS),
    )
    .action(async (options: UsageOptions) => {
      const format = chosenFormat(options);
      const window = windowOf(options);
      const book = bookOf(options);
      if (format === 'focus') checkCharges(window, book, options);
      await withDatabase(options, 'usage', async (pool) => {
        const scope = { orgId: await namedOrg(pool, options.org), sandboxIds: undefined, labels: {} };
        await inTransaction(
          pool,
          async (tx) => {
            await tx.query('set transaction isolation level repeatable read, read only');
            if (format === 'focus') await printCharges(tx, scope, window, book!);
            else if (format !== undefined)
              await printRows(tx, { scope, window, book, by: options.by }, format);
            else
              await write(await usagePicture(tx, scope, { window, book, keys: options.by ?? [] }, options));
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

function readKeys(text: string): string[] {
  const keys = text.split(',').map((key) => key.trim());
  if (keys.includes(''))
    throw new ExplainedError('--by needs names of labels with commas between them, such as team,env');
  if (keys.length > MOST_LABEL_KEYS) throw new ExplainedError(`--by takes at most ${MOST_LABEL_KEYS} labels`);
  try {
    checkLabelKeys('--by', keys);
  } catch (error) {
    return explained(error);
  }
  return keys;
}

function bookOf({ priceBook }: UsageOptions): PriceBook | null {
  return priceBook === undefined ? null : loadPriceBook(priceBook);
}

function checkCharges(window: Window, book: PriceBook | null, { by }: UsageOptions): void {
  if (book === null) {
    throw new ExplainedError(
      '--format focus needs prices: name the price book of the service with --price-book',
    );
  }
  if (by !== undefined) {
    throw new ExplainedError('--by and --format focus exclude each other: the column Tags has the labels');
  }
  try {
    checkFocus(window, book);
  } catch (error) {
    explained(error);
  }
}

interface Rows {
  scope: UsageFilter;
  window: Window;
  book: PriceBook | null;
  by: string[] | undefined;
}

async function printRows(tx: Transaction, { scope, window, book, by }: Rows, format: Format): Promise<void> {
  const texts =
    by === undefined
      ? sandboxBreakdown(tx, scope, window, format)
      : labelBreakdown(tx, { filter: scope, keys: by, window, book }, format);
  for await (const text of texts) await write(text);
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

/** Waits for a slow reader, so that a pager does not hold a year of usage in memory. */
async function write(text: string): Promise<void> {
  if (!process.stdout.write(text)) await once(process.stdout, 'drain');
}
