import { fetchAhead, rowsOf } from '../db/rows.js';
import type { Transaction } from '../db/transaction.js';
import { CSV_LINE_END, csvLines } from '../lib/csv.js';
import { labelRows } from './label-queries.js';
import { mergeRows, type LooseRow, type Positions, type StoredRow } from './merge.js';
import {
  countOpenRuns,
  FIRST_PLACE,
  looseRows,
  SEPARATORS,
  storedRows,
  storedText,
  usedSandboxes,
  type Format,
  type Place,
  type Query,
  type Scope,
} from './queries.js';
import { storageRows, usedVolumes } from './storage-queries.js';
import { LONGEST_WINDOW_DAYS, slabsOf, type Slab, type Stretch, type Window } from './window.js';

/** Lines that the database puts together to one text, of about 200 bytes each. */
const TEXT_ROWS = 4_000;
/** About how many rows the database puts in order at once. */
const SORTED_ROWS = 100_000;

const POSITIONS: Record<Format, Positions> = {
  json: { day: '{"day":"'.length, id: '{"day":"2026-11-21T00:00:00Z","sandbox_id":"'.length },
  csv: { day: 0, id: '2026-11-21,'.length },
};

/**
 * Compute used by each sandbox on each UTC day, by day, then name, as text. The directory names every sandbox that a row
 * does, removed ones too.
 */
export async function* sandboxBreakdown(
  tx: Transaction,
  scope: Scope,
  window: Window,
  format: Format,
): AsyncGenerator<string> {
  const rows = sandboxRows(tx, scope, window, format);
  if (format === 'csv') {
    return yield* csvOf(
      ['day', 'sandbox_id', 'name', 'vcpu_seconds', 'mem_mib_seconds', 'disk_mib_seconds'],
      rows,
    );
  }
  yield* arrayOf('{"rows":[', rows);
  const [slab] = slabsOf(window, LONGEST_WINDOW_DAYS);
  yield* arrayOf('],"sandboxes":[', slab ? linesOf(tx, usedSandboxes(scope, slab)) : nothing());
  yield ']}';
}

/**
 * Compute used by UTC day and value of the label `key`, as it was while it ran. What ran without that label stands apart: a label may
 * have any value.
 */
export async function* labelBreakdown(
  tx: Transaction,
  scope: Scope,
  key: string,
  window: Window,
  format: Format,
): AsyncGenerator<string> {
  // A row for each day at most, so they can wait until the others are out.
  const unlabelled: string[] = [];
  async function* rows(): AsyncGenerator<string[]> {
    for (const slab of await slabsFor(tx, scope.orgId, window)) {
      const query = labelRows(scope, key, slab, format);
      for await (const batch of rowsOf<[boolean, string]>(tx, 'label_rows', query)) {
        if (format === 'csv') yield batch.map(([, line]) => line);
        else {
          yield batch.flatMap(([labelled, line]) => (labelled ? [line] : []));
          unlabelled.push(...batch.flatMap(([labelled, line]) => (labelled ? [] : [line])));
        }
      }
    }
  }
  if (format === 'csv') {
    return yield* csvOf(
      ['day', 'bucket', 'value', 'vcpu_seconds', 'mem_mib_seconds', 'disk_mib_seconds'],
      rows(),
    );
  }
  yield* arrayOf(`{"key":${JSON.stringify(key)},"rows":[`, rows());
  yield `],"unlabelled":[${unlabelled.join(',')}]}`;
}

/** Storage used by each volume on each UTC day. A volume that is gone has rows but no entry in the directory. */
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
 * Days that are over are read as they are stored; only what is open or cut by the window is summed. Up to the first day of which
 * something has to be summed nothing is looked at, only passed on.
 */
async function* sandboxRows(
  tx: Transaction,
  scope: Scope,
  window: Window,
  format: Format,
): AsyncGenerator<string[]> {
  const slabs = await slabsFor(tx, scope.orgId, window);
  async function* batches(): AsyncGenerator<LooseRow[]> {
    for (const slab of slabs) yield* rowsOf<LooseRow>(tx, 'loose_rows', looseRows(scope, slab, format));
  }
  const loose = await peekFirst(batches());
  const days = slabs[0]?.wholeOfWindow;
  let stored: AsyncIterable<StoredRow[]> = nothing();
  if (days) {
    const day = loose.first?.[0]?.[0];
    const mixed =
      day === undefined ? days.to : [days.from, `${day}T00:00:00.000000Z`, days.to].toSorted()[1]!;
    if (days.from < mixed) yield* storedLines(tx, scope, { from: days.from, to: mixed }, days, format);
    if (mixed < days.to) {
      stored = rowsOf(tx, 'stored_rows', storedRows(scope, { from: mixed, to: days.to }, days, format));
    }
  }
  yield* mergeRows(stored, loose.all, POSITIONS[format]);
}

/**
 * A part of the stored days, which need not be compared with anything. Of all the sandboxes they come as finished text, many lines in one row
 * (docs/performance.md: handing over each by itself took most of the time).
 */
async function* storedLines(
  tx: Transaction,
  scope: Scope,
  part: Stretch,
  days: Stretch,
  format: Format,
): AsyncGenerator<string[]> {
  if (scope.sandboxIds !== undefined || Object.keys(scope.labels).length > 0) {
    for await (const rows of rowsOf<StoredRow>(tx, 'stored_lines', storedRows(scope, part, days, format))) {
      yield rows.map(([line]) => line);
    }
    return;
  }
  type Text = [text: string, count: number, ...last: Place];
  const fetch = async (before: Text | undefined): Promise<Text> => {
    const [, , ...after] = before ?? ['', 0, ...FIRST_PLACE];
    const query = storedText(scope.orgId, part, format, after, TEXT_ROWS);
    const { rows } = await tx.query<Text>({ ...query, values: [...query.values], rowMode: 'array' });
    return rows[0]!;
  };
  for await (const [text, count] of fetchAhead(fetch, ([, found]) => found < TEXT_ROWS)) {
    if (count > 0) yield [text];
  }
}

/** The first of a sequence, and the sequence with it. */
async function peekFirst<T>(
  sequence: AsyncGenerator<T>,
): Promise<{ first: T | undefined; all: AsyncIterable<T> }> {
  const { done, value } = await sequence.next();
  if (done === true) return { first: undefined, all: nothing() };
  async function* all(): AsyncGenerator<T> {
    yield value as T;
    yield* sequence;
  }
  return { first: value, all: all() };
}

/** The window in pieces for which the database does not have to sort too much. */
async function slabsFor(tx: Transaction, orgId: string, window: Window): Promise<Slab[]> {
  const open = await countOpenRuns(tx, orgId);
  return slabsOf(window, Math.max(1, Math.floor(SORTED_ROWS / Math.max(open, 1))));
}

async function* linesOf(tx: Transaction, query: Query): AsyncGenerator<string[]> {
  for await (const rows of rowsOf<[string]>(tx, 'lines', query)) yield rows.map(([line]) => line);
}

async function* arrayOf(opening: string, batches: AsyncIterable<string[]>): AsyncGenerator<string> {
  let before = opening;
  for await (const lines of batches) {
    if (lines.length === 0) continue;
    yield before + lines.join(SEPARATORS.json);
    before = SEPARATORS.json;
  }
  if (before === opening) yield opening;
}

async function* csvOf(columns: string[], batches: AsyncIterable<string[]>): AsyncGenerator<string> {
  yield csvLines([columns]);
  for await (const lines of batches) if (lines.length > 0) yield lines.join(SEPARATORS.csv) + CSV_LINE_END;
}

// A sequence without an element has nothing to yield.
// oxlint-disable-next-line require-yield
async function* nothing(): AsyncGenerator<never> {
  await Promise.resolve();
}
