import { fetchAhead } from '../../db/rows.js';
import type { Transaction } from '../../db/transaction.js';
import { findSpan, readLog, type LogRange, type StoredEntry } from '../log/log-queries.js';

type Batch = Awaited<ReturnType<typeof readLog>>;

const BATCH = 500;

/** The entries of a range in batches. With a filter, only entries with events that pass it. */
export async function* readEntries(
  tx: Transaction,
  orgId: string,
  range: LogRange,
): AsyncGenerator<StoredEntry[]> {
  const narrowed = await narrow(tx, orgId, range);
  if (!narrowed) return;
  const next = (previous?: Batch) =>
    readLog(tx, orgId, { ...narrowed, afterSeq: previous?.entries.at(-1)?.seq ?? narrowed.afterSeq }, BATCH);
  for await (const { entries } of fetchAhead<Batch>(next, ({ more }) => !more)) {
    const passed = range.filter ? entries.filter(({ event }) => event) : entries;
    if (passed.length > 0) yield passed;
  }
}

/** Narrows a range to the time of its filter; undefined: no entry has an event of this time. */
async function narrow(tx: Transaction, orgId: string, range: LogRange): Promise<LogRange | undefined> {
  const { filter } = range;
  if (filter?.since === undefined && filter?.until === undefined) return range;
  const during = { since: filter.since, until: filter.until };
  const span = await findSpan(tx, orgId, during, range);
  return span && { filter, during, afterSeq: span.first - 1, upToSeq: span.last };
}
