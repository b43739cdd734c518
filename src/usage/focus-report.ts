import type { Transaction } from '../db/transaction.js';
import { badParameter } from '../http/errors.js';
import { CSV_LINE_END } from '../lib/csv.js';
import { monthAfter, type Instant } from '../lib/instant.js';
import { COMPUTE_METRICS, type Metric, type PriceBook } from '../prices/price.js';
import { linesOf, sandboxRows } from './breakdown.js';
import { Allowance } from './allowance.js';
import { FocusCharges } from './focus-charges.js';
import { FOCUS_COLUMNS } from './focus-columns.js';
import { getOrgName, type UsageFilter } from './queries.js';
import { storageRows } from './storage-queries.js';
import { withQuotas } from './summary.js';
import type { Window } from './window.js';

const STORAGE: readonly Metric[] = ['storage_gib_hour'];

export const FOCUS_HEADER = `${FOCUS_COLUMNS.join(',')}${CSV_LINE_END}`;

/** FOCUS has charges by whole UTC day, and every charge has a currency. Returns the price book. */
export function checkFocus({ since, until, now }: Window, book: PriceBook | null): PriceBook {
  if (!book) {
    throw badParameter(
      'format',
      'format=focus needs a price book, which this service does not have: start it with --price-book',
    );
  }
  for (const [name, time] of Object.entries({ since, until })) {
    if (time !== now && !time.endsWith('T00:00:00.000000Z')) {
      throw badParameter(
        name,
        `${name} must be the start of a UTC day, such as 2026-11-01, with format=focus`,
      );
    }
  }
  return book;
}

export async function* sandboxCharges(
  tx: Transaction,
  filter: UsageFilter,
  window: Window,
  book: PriceBook,
): AsyncGenerator<string> {
  const isFiltered = filter.sandboxIds !== undefined || Object.keys(filter.labels).length > 0;
  const charges = await chargesOf(tx, filter.orgId, window, book, { metrics: COMPUTE_METRICS, isFiltered });
  for await (const batch of sandboxRows(tx, filter, window, 'focus')) {
    // The database joins the lines of stored days.
    for (const text of batch) yield* charges.of(text.split(CSV_LINE_END));
  }
  yield charges.finish();
}

export async function* storageCharges(
  tx: Transaction,
  orgId: string,
  window: Window,
  book: PriceBook,
): AsyncGenerator<string> {
  const charges = await chargesOf(tx, orgId, window, book, { metrics: STORAGE, isFiltered: false });
  for await (const lines of linesOf(tx, storageRows(orgId, window, 'focus'))) yield* charges.of(lines);
  yield charges.finish();
}

async function chargesOf(
  tx: Transaction,
  orgId: string,
  window: Window,
  ownBook: PriceBook,
  { metrics, isFiltered }: { metrics: readonly Metric[]; isFiltered: boolean },
): Promise<FocusCharges> {
  const { since, until, now } = window;
  const book = await withQuotas(tx, orgId, ownBook);
  const allowance = await Allowance.read(tx, orgId, window, { book, metrics });
  const isWhole = (month: Instant) => {
    const end = monthAfter(month);
    return !isFiltered && since <= month && end <= until && end <= now;
  };
  return new FocusCharges({
    id: orgId,
    name: await getOrgName(tx, orgId),
    book,
    allowance,
    metrics,
    isWhole,
  });
}
