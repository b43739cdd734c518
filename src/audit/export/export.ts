import type { Pool } from '../../db/pool.js';
import { inTransaction, type Transaction } from '../../db/transaction.js';
import { badParameter } from '../../http/errors.js';
import type { Instant } from '../../lib/instant.js';
import { genesisLink, type LogPosition } from '../events/hash-chain.js';
import type { EventFilter } from '../events/queries.js';
import { recordEvent } from '../events/record.js';
import type { EventActor } from '../events/schema.js';
import { isEmpty, givenFilter, type FilterQuery } from '../list/filter.js';
import { readKnownFilter } from '../list/known-event-types.js';
import { getHead, linkAt, readCheckpoints } from '../log/chain-queries.js';
import type { Checkpoint, DropRecord } from '../log/checkpoint.js';
import { listDrops } from '../log/retention-queries.js';
import { readLogFacts } from '../ocsf/log-facts.js';
import { ocsfOf } from '../ocsf/present.js';
import { readEntries } from '../verify/entry-batches.js';
import { formatExportLine } from '../verify/export-line.js';
import { CSV_HEADER, csvOfEntries } from './csv.js';

export const EXPORT_FORMATS = ['ndjson', 'csv', 'ocsf'] as const;
export type ExportFormat = (typeof EXPORT_FORMATS)[number];

export interface ExportRequest {
  orgId: string;
  actor: EventActor;
  format: ExportFormat;
  afterSeq: number;
  query: FilterQuery;
}

export interface StartedExport {
  orgId: string;
  afterSeq: number;
  upToSeq: number;
  format: ExportFormat;
  query: FilterQuery;
  filter: EventFilter;
  end: Checkpoint | undefined;
}

/**
 * Writes the audit event in its own transaction, before any entry is sent. `tx`: a read-only snapshot with locked
 * partitions.
 */
export async function startExport(
  pool: Pool,
  tx: Transaction,
  request: ExportRequest,
  at: Instant,
): Promise<StartedExport> {
  const { orgId, actor, format, afterSeq, query } = request;
  const filter = await readKnownFilter(tx, orgId, query);
  const end = await getHead(tx, orgId);
  const upToSeq = end?.seq ?? 0;
  if (afterSeq > upToSeq) {
    throw badParameter(
      'after_seq',
      `after_seq must not be greater than ${upToSeq}, the last entry of the log`,
    );
  }
  const payload = { format, filters: givenFilter(query), after_seq: afterSeq, up_to_seq: upToSeq };
  await inTransaction(pool, (ownTx) =>
    recordEvent(ownTx, { orgId, type: 'events_exported', actor, resourceId: null, at, payload }),
  );
  return { orgId, afterSeq, upToSeq, format, query, filter, end };
}

type OnEntries = (seq: number, count: number) => void;

/**
 * Only unfiltered NDJSON can be verified: links cover every entry. `onEntries`: gets the last `seq` and the size of
 * each chunk.
 */
export async function* exportText(
  tx: Transaction,
  started: StartedExport,
  onEntries: OnEntries = () => undefined,
): AsyncIterable<string> {
  if (started.format === 'csv') yield* csv(tx, started, onEntries);
  else if (started.format === 'ocsf') yield* ocsf(tx, started, onEntries);
  else if (isEmpty(started.filter)) yield* verifiable(tx, started, onEntries);
  else yield* filtered(tx, started, onEntries);
}

async function* verifiable(
  tx: Transaction,
  started: StartedExport,
  onEntries: OnEntries,
): AsyncIterable<string> {
  const { orgId, afterSeq, upToSeq, end } = started;
  const drops = await listDrops(tx, orgId);
  const begin = formatExportLine({ begin: { org_id: orgId, ...(await beginning(tx, started, drops)) } });
  const promisedEnd = end ? formatExportLine({ end }) : '';
  yield `${begin}${promisedEnd}${drops.map((drop) => formatExportLine({ drop })).join('')}`;
  for await (const entries of readEntries(tx, orgId, { afterSeq, upToSeq })) {
    const checkpoints = await readCheckpoints(tx, orgId, entries);
    let text = '';
    for (const entry of entries) {
      text += formatExportLine({ entry });
      const checkpoint = checkpoints.get(entry.seq);
      if (checkpoint && entry.seq < upToSeq) text += formatExportLine({ checkpoint });
    }
    yield text;
    onEntries(entries.at(-1)!.seq, entries.length);
  }
  if (end) yield formatExportLine({ checkpoint: end });
}

/** The requested beginning, or the current beginning of the log when retention dropped the requested entry. */
async function beginning(
  tx: Transaction,
  { orgId, afterSeq }: StartedExport,
  drops: readonly DropRecord[],
): Promise<LogPosition> {
  const base = drops.reduce(
    (latest, { base_seq, base_link }) =>
      base_seq > latest.seq ? { seq: base_seq, link: base_link } : latest,
    { seq: 0, link: genesisLink(orgId) },
  );
  if (afterSeq <= base.seq) return base;
  return { seq: afterSeq, link: (await linkAt(tx, orgId, afterSeq))! };
}

async function* filtered(
  tx: Transaction,
  started: StartedExport,
  onEntries: OnEntries,
): AsyncIterable<string> {
  const { orgId, afterSeq, upToSeq, query, end } = started;
  const asked = { org_id: orgId, after_seq: afterSeq, up_to_seq: upToSeq, filters: givenFilter(query) };
  yield `${JSON.stringify({ filtered: asked })}\n`;
  for await (const entries of readEntries(tx, orgId, started)) {
    yield entries.map((entry) => formatExportLine({ entry })).join('');
    onEntries(entries.at(-1)!.seq, entries.length);
  }
  // A file without this line is not complete.
  if (end) yield formatExportLine({ checkpoint: end });
}

async function* csv(tx: Transaction, started: StartedExport, onEntries: OnEntries): AsyncIterable<string> {
  yield CSV_HEADER;
  for await (const entries of readEntries(tx, started.orgId, started)) {
    yield csvOfEntries(entries);
    onEntries(entries.at(-1)!.seq, entries.length);
  }
}

/** A line for each event. An event that retention dropped has no line. */
async function* ocsf(tx: Transaction, started: StartedExport, onEntries: OnEntries): AsyncIterable<string> {
  for await (const entries of readEntries(tx, started.orgId, started)) {
    const facts = await readLogFacts(tx, started.orgId, entries, started.end);
    yield entries
      .map(({ seq, event }) => (event ? `${JSON.stringify(ocsfOf(event, facts.get(seq)!))}\n` : ''))
      .join('');
    onEntries(entries.at(-1)!.seq, entries.length);
  }
}
