import type { Pool } from '../../db/pool.js';
import { inTransaction, type Transaction } from '../../db/transaction.js';
import { badParameter } from '../../http/errors.js';
import type { Instant } from '../../lib/instant.js';
import { originOf } from '../events/content.js';
import type { EventFilter } from '../events/queries.js';
import { recordEvent } from '../events/record.js';
import type { EventActor } from '../events/schema.js';
import { isEmpty, spokenFilter, type FilterQuery } from '../list/filter.js';
import { readKnownFilter } from '../list/known-filter.js';
import type { Checkpoint, Drop } from '../log/checkpoint.js';
import { readDrops } from '../log/retention-queries.js';
import { writeLogLine } from '../verify/log-file.js';
import { readEntries, readLink, readPlaces, type Part } from '../verify/log-queries.js';
import { readEnd } from '../verify/verify-store.js';
import { CSV_HEADER, csvOfEntries } from './csv.js';

export const EXPORT_FORMATS = ['ndjson', 'csv'] as const;
type ExportFormat = (typeof EXPORT_FORMATS)[number];

export interface ExportRequest {
  orgId: string;
  actor: EventActor;
  format: ExportFormat;
  /** Begins after this entry of the log; 0 for all of it. */
  afterSeq: number;
  query: FilterQuery;
}

/** An export that has been written down in the audit trail and can now be read, from the same snapshot. */
export interface Begun extends Part {
  format: ExportFormat;
  query: FilterQuery;
  filter: EventFilter;
  /** The signed end of the part; undefined while the log is empty. */
  end: Checkpoint | undefined;
}

/**
 * Decides what is exported: the log as it is in the snapshot of `tx`, which only reads and keeps the partitions. Writes the audit
 * event, by a connection of its own, before anything is handed out. Throws the refusal of what is not understood.
 */
export async function beginExport(
  pool: Pool,
  tx: Transaction,
  request: ExportRequest,
  at: Instant,
): Promise<Begun> {
  const { orgId, actor, format, afterSeq, query } = request;
  const filter = await readKnownFilter(tx, orgId, query);
  const end = await readEnd(tx, orgId);
  const upToSeq = end?.seq ?? 0;
  if (afterSeq > upToSeq) {
    throw badParameter('after_seq', `after_seq is behind the end of the log, which is ${upToSeq}`);
  }
  const payload = { format, filters: spokenFilter(query), after_seq: afterSeq, up_to_seq: upToSeq };
  await inTransaction(pool, (own) =>
    recordEvent(own, { orgId, type: 'events_exported', actor, resourceId: null, at, payload }),
  );
  return { orgId, afterSeq, upToSeq, format, query, filter, end };
}

type OnEntries = (seq: number, count: number) => void;

/**
 * The text of an export, in pieces. `onEntries`: called with the last entry of each piece and how many it has.
 *
 * A whole one as NDJSON can be verified without the database: what is in a log file is said in `log-file.ts`. One that is
 * filtered, and CSV, cannot: what is left out is missing from the links.
 */
export async function* exportText(
  tx: Transaction,
  begun: Begun,
  onEntries: OnEntries = () => undefined,
): AsyncIterable<string> {
  if (begun.format === 'csv') yield* asCsv(tx, begun, onEntries);
  else if (isEmpty(begun.filter)) yield* asLog(tx, begun, onEntries);
  else yield* asFiltered(tx, begun, onEntries);
}

async function* asLog(tx: Transaction, begun: Begun, onEntries: OnEntries): AsyncIterable<string> {
  const { orgId, afterSeq, upToSeq, end } = begun;
  const drops = await readDrops(tx, orgId);
  const after = await beginning(tx, begun, drops);
  const begin = writeLogLine({ begin: { org_id: orgId, ...after } });
  const whole = end ? writeLogLine({ end }) : '';
  yield `${begin}${whole}${drops.map((drop) => writeLogLine({ drop })).join('')}`;
  for await (const entries of readEntries(tx, orgId, { afterSeq, upToSeq })) {
    const places = await readPlaces(tx, orgId, entries);
    let text = '';
    for (const entry of entries) {
      text += writeLogLine({ entry });
      const checkpoint = places.get(entry.seq);
      if (checkpoint && entry.seq < upToSeq) text += writeLogLine({ checkpoint });
    }
    yield text;
    onEntries(entries.at(-1)!.seq, entries.length);
  }
  if (end) yield writeLogLine({ checkpoint: end });
}

/** After the entry that was asked for, or, when retention took that with all before it, where the log begins now. */
async function beginning(
  tx: Transaction,
  { orgId, afterSeq }: Part,
  drops: readonly Drop[],
): Promise<{ after_seq: number; link: Buffer }> {
  const base = drops.reduce(
    (latest, { base_seq, base_link }) =>
      base_seq > latest.after_seq ? { after_seq: base_seq, link: base_link } : latest,
    { after_seq: 0, link: originOf(orgId) },
  );
  if (afterSeq <= base.after_seq) return base;
  return { after_seq: afterSeq, link: await readLink(tx, orgId, afterSeq) };
}

async function* asFiltered(tx: Transaction, begun: Begun, onEntries: OnEntries): AsyncIterable<string> {
  const { orgId, afterSeq, upToSeq, query, end } = begun;
  const asked = { org_id: orgId, after_seq: afterSeq, up_to_seq: upToSeq, filters: spokenFilter(query) };
  yield `${JSON.stringify({ filtered: asked })}\n`;
  for await (const entries of readEntries(tx, orgId, begun)) {
    yield entries.map((entry) => writeLogLine({ entry })).join('');
    onEntries(entries.at(-1)!.seq, entries.length);
  }
  // Tells a whole file from one that broke off.
  if (end) yield writeLogLine({ checkpoint: end });
}

async function* asCsv(tx: Transaction, begun: Begun, onEntries: OnEntries): AsyncIterable<string> {
  yield CSV_HEADER;
  for await (const entries of readEntries(tx, begun.orgId, begun)) {
    yield csvOfEntries(entries);
    onEntries(entries.at(-1)!.seq, entries.length);
  }
}
