import { fetchAhead } from '../db/rows.js';
import type { Transaction } from '../db/transaction.js';
import type { Checkpoint } from './checkpoint.js';
import { readLog } from './log.js';
import type { EventFilter } from './queries.js';
import type { Entry } from './verify.js';

/** The part of a log that is exported: after one entry, up to another. */
export interface Part {
  orgId: string;
  afterSeq: number;
  upToSeq: number;
}

/** Entries that are looked at together: what an event says can be long, and a filter may let none of many pass. */
const BATCH = 500;

/** The entries of a part, in order and in batches. With a filter, only those of events that are there and pass it. */
export async function* readEntries(
  tx: Transaction,
  { orgId, afterSeq, upToSeq }: Part,
  filter?: EventFilter,
): AsyncGenerator<Entry[]> {
  const batches = fetchAhead<Entry[]>(
    (before) => readLog(tx, orgId, { afterSeq: before?.at(-1)?.seq ?? afterSeq, upToSeq, filter }, BATCH),
    (batch) => batch.length < BATCH,
  );
  for await (const batch of batches) {
    const entries = filter ? batch.filter(({ event }) => event) : batch;
    if (entries.length > 0) yield entries;
  }
}

/** The signed places of the log that are kept at these entries, by their numbers. */
export async function readPlaces(
  tx: Transaction,
  orgId: string,
  entries: readonly Entry[],
): Promise<Map<number, Checkpoint>> {
  const { rows } = await tx.query<Checkpoint & Record<string, unknown>>(
    `select org_id, seq, link, at, key_id, signature from event_checkpoints
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
