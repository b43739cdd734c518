import { fetchAhead } from '../../db/rows.js';
import type { Transaction } from '../../db/transaction.js';
import type { Checkpoint } from '../log/checkpoint.js';
import type { Entry } from '../log/entry.js';
import { findSpan, readLogStream, type LogEntry, type LogPart } from '../log/read.js';

/** The part of a log that is exported: after one entry, up to another. */
export interface Part {
  orgId: string;
  afterSeq: number;
  upToSeq: number;
}

type Batch = Awaited<ReturnType<typeof readLogStream>>;

/** Entries that are looked at together, at most: a filter may let none of many pass. */
const BATCH = 500;

/** The entries of a part, in order and in batches. With a filter, only those of events that are there and pass it. */
export async function* readEntries(
  tx: Transaction,
  orgId: string,
  part: LogPart,
): AsyncGenerator<LogEntry[]> {
  const asked = await narrow(tx, orgId, part);
  if (!asked) return;
  const next = (before?: Batch) =>
    readLogStream(tx, orgId, { ...asked, afterSeq: before?.entries.at(-1)?.seq ?? asked.afterSeq }, BATCH);
  for await (const { entries } of fetchAhead<Batch>(next, ({ more }) => !more)) {
    const passed = part.filter ? entries.filter(({ event }) => event) : entries;
    if (passed.length > 0) yield passed;
  }
}

/** A part without what lies before and behind the entries of the time that its filter asks for; undefined when there are none. */
async function narrow(tx: Transaction, orgId: string, part: LogPart): Promise<LogPart | undefined> {
  const { filter } = part;
  if (filter?.since === undefined && filter?.until === undefined) return part;
  const during = { since: filter.since, until: filter.until };
  const span = await findSpan(tx, orgId, during, part);
  return span && { filter, during, afterSeq: span.first - 1, upToSeq: span.last };
}

/** The signed places of the log that are kept at these entries, by their numbers. */
export async function readPlaces(
  tx: Transaction,
  orgId: string,
  entries: readonly Entry[],
): Promise<Map<number, Checkpoint>> {
  const { rows } = await tx.query<Checkpoint & Record<string, unknown>>(
    `select org_id, seq, link, at, marked_from, key_id, signature from event_checkpoints
     where org_id = $1 and seq between $2 and $3`,
    [orgId, entries[0]!.seq, entries.at(-1)!.seq],
  );
  return new Map(rows.map((checkpoint) => [checkpoint.seq, checkpoint]));
}

/** The link of an entry that is in the log. */
export async function readLink(tx: Transaction, orgId: string, seq: number): Promise<Buffer> {
  const { rows } = await tx.query<{ link: Buffer }>(
    'select link from event_log where org_id = $1 and seq = $2',
    [orgId, seq],
  );
  return rows[0]!.link;
}
