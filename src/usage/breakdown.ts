import { fetchAhead, rowsOf } from '../db/rows.js';
import type { Transaction } from '../db/transaction.js';
import { CSV_LINE_END, csvLines } from '../lib/csv.js';
import { mergeRows, type SummedRow, type Positions, type StoredRow } from './merge.js';
import {
  countOpenRuns,
  BEFORE_FIRST_ROW,
  summedRows,
  SEPARATORS,
  storedRows,
  storedText,
  usedSandboxes,
  type Format,
  type RowFormat,
  type RowKey,
  type Query,
  type UsageFilter,
} from './queries.js';
import { storageRows, usedVolumes } from './storage-queries.js';
import { LONGEST_WINDOW_DAYS, splitWindow, type WindowPart, type TimeRange, type Window } from './window.js';

/** The lines, of about 200 bytes each, that the database joins to one text. */
const TEXT_ROWS = 4_000;
/** The approximate number of rows that the database sorts at once. */
const SORTED_ROWS = 100_000;

const POSITIONS: Record<RowFormat, Positions> = {
  json: { day: '{"day":"'.length, id: '{"day":"2026-11-21T00:00:00Z","sandbox_id":"'.length },
  csv: { day: 0, id: '2026-11-21,'.length },
  focus: { day: 0, id: '2026-11-21,'.length },
};

/** Compute by UTC day and sandbox. The list of sandboxes contains removed ones too. */
export async function* sandboxBreakdown(
  tx: Transaction,
  filter: UsageFilter,
  window: Window,
  format: Format,
): AsyncGenerator<string> {
  const rows = sandboxRows(tx, filter, window, format);
  if (format === 'csv') {
    return yield* csvOf(
      ['day', 'sandbox_id', 'name', 'vcpu_seconds', 'mem_mib_seconds', 'disk_mib_seconds'],
      rows,
    );
  }
  yield* arrayOf('{"rows":[', rows);
  const [part] = splitWindow(window, LONGEST_WINDOW_DAYS);
  yield* arrayOf('],"sandboxes":[', part ? linesOf(tx, usedSandboxes(filter, part)) : emptySequence());
  yield ']}';
}

/** Storage by UTC day and volume. Deleted volumes have rows, but are not in the list of volumes. */
export async function* storageBreakdown(
  tx: Transaction,
  orgId: string,
  window: Window,
  format: Format,
): AsyncGenerator<string> {
  const rows = linesOf(tx, storageRows(orgId, window, format));
  if (format === 'csv') return yield* csvOf(['day', 'volume_id', 'name', 'mib_seconds'], rows);
  yield* arrayOf('{"rows":[', rows);
  yield* arrayOf('],"volumes":[', linesOf(tx, usedVolumes(orgId, window)));
  yield ']}';
}

/**
 * Past days are read as stored; only open runs and cut days are summed. Stored rows before the first summed day need no
 * merge.
 */
export async function* sandboxRows(
  tx: Transaction,
  filter: UsageFilter,
  window: Window,
  format: RowFormat,
): AsyncGenerator<string[]> {
  const parts = await windowParts(tx, filter.orgId, window);
  async function* batches(): AsyncGenerator<SummedRow[]> {
    for (const part of parts) yield* rowsOf<SummedRow>(tx, 'summed_rows', summedRows(filter, part, format));
  }
  const summed = await peekFirst(batches());
  const days = parts[0]?.wholeOfWindow;
  let stored: AsyncIterable<StoredRow[]> = emptySequence();
  if (days) {
    const day = summed.first?.[0]?.[0];
    const mixed =
      day === undefined ? days.to : [days.from, `${day}T00:00:00.000000Z`, days.to].toSorted()[1]!;
    if (days.from < mixed) yield* storedLines(tx, filter, { from: days.from, to: mixed }, days, format);
    if (mixed < days.to) {
      stored = rowsOf(tx, 'stored_rows', storedRows(filter, { from: mixed, to: days.to }, days, format));
    }
  }
  yield* mergeRows(stored, summed.all, POSITIONS[format]);
}

/**
 * Stored days without a merge. Without a filter, the database joins many lines to one row, which is faster
 * (docs/decisions/0035-attempts-at-speed.md).
 */
async function* storedLines(
  tx: Transaction,
  filter: UsageFilter,
  part: TimeRange,
  days: TimeRange,
  format: RowFormat,
): AsyncGenerator<string[]> {
  if (filter.sandboxIds !== undefined || Object.keys(filter.labels).length > 0) {
    for await (const rows of rowsOf<StoredRow>(tx, 'stored_lines', storedRows(filter, part, days, format))) {
      yield rows.map(([line]) => line);
    }
    return;
  }
  type Text = [text: string, count: number, ...last: RowKey];
  const fetch = async (before: Text | undefined): Promise<Text> => {
    const [, , ...after] = before ?? ['', 0, ...BEFORE_FIRST_ROW];
    const query = storedText(filter.orgId, part, format, after, TEXT_ROWS);
    const { rows } = await tx.query<Text>({ ...query, values: [...query.values], rowMode: 'array' });
    return rows[0]!;
  };
  for await (const [text, count] of fetchAhead(fetch, ([, found]) => found < TEXT_ROWS)) {
    if (count > 0) yield [text];
  }
}

/** Returns the first item, and the sequence including it. */
async function peekFirst<T>(
  sequence: AsyncGenerator<T>,
): Promise<{ first: T | undefined; all: AsyncIterable<T> }> {
  const { done, value } = await sequence.next();
  if (done === true) return { first: undefined, all: emptySequence() };
  async function* all(): AsyncGenerator<T> {
    yield value as T;
    yield* sequence;
  }
  return { first: value, all: all() };
}

/** Splits the window so that the database sorts about SORTED_ROWS rows at once. */
export async function windowParts(tx: Transaction, orgId: string, window: Window): Promise<WindowPart[]> {
  const open = await countOpenRuns(tx, orgId);
  return splitWindow(window, Math.max(1, Math.floor(SORTED_ROWS / Math.max(open, 1))));
}

export async function* linesOf(tx: Transaction, query: Query): AsyncGenerator<string[]> {
  for await (const rows of rowsOf<[string]>(tx, 'lines', query)) yield rows.map(([line]) => line);
}

export async function* arrayOf(opening: string, batches: AsyncIterable<string[]>): AsyncGenerator<string> {
  let before = opening;
  for await (const lines of batches) {
    if (lines.length === 0) continue;
    yield before + lines.join(SEPARATORS.json);
    before = SEPARATORS.json;
  }
  if (before === opening) yield opening;
}

export async function* csvOf(columns: string[], batches: AsyncIterable<string[]>): AsyncGenerator<string> {
  yield csvLines([columns]);
  for await (const lines of batches) if (lines.length > 0) yield lines.join(SEPARATORS.csv) + CSV_LINE_END;
}

// oxlint-disable-next-line require-yield -- the sequence is empty
async function* emptySequence(): AsyncGenerator<never> {
  await Promise.resolve();
}
