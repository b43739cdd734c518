import { rowsOf } from '../db/rows.js';
import type { Transaction } from '../db/transaction.js';
import { Conditions } from '../lib/conditions.js';
import type { Instant } from '../lib/instant.js';
import { addFilter, type EventFilter } from './queries.js';
import type { EventActor } from './schema.js';
import type { Entry } from './verify.js';
import type { Checkpoint } from './checkpoint.js';

/** The part of a log that is exported: after one entry, up to another. */
export interface Part {
  orgId: string;
  afterSeq: number;
  upToSeq: number;
}

type Row = [
  number,
  string,
  Instant,
  Buffer,
  boolean,
  Buffer,
  string | null,
  string,
  string,
  EventActor,
  unknown,
  string | null,
  Buffer | null,
  Instant,
  string,
  Buffer,
];

/** Rows that are held at once: what an event says can be long. */
const BATCH = 500;

export interface ExportedEntry extends Entry {
  /** The signed place that is kept of the log up to here. */
  checkpoint: Checkpoint | null;
}

/** The entries of a part, in order and in batches. With a filter, only those of events that are there and pass it. */
export async function* readEntries(
  tx: Transaction,
  { orgId, afterSeq, upToSeq }: Part,
  filter: EventFilter | undefined,
): AsyncGenerator<ExportedEntry[]> {
  const where = new Conditions()
    .add((p) => `l.org_id = ${p(orgId)}`)
    .add((p) => `l.seq > ${p(afterSeq)}`)
    .add((p) => `l.seq <= ${p(upToSeq)}`);
  if (filter) addFilter(where, filter, 'e');
  const batches = rowsOf<Row>(
    tx,
    'exported',
    {
      text: `select l.seq, l.event_id, l.occurred_at, l.leaf, l.unmarked, l.link,
         e.org_id, e.category, e.event_type, e.actor, e.payload, e.resource_id,
         c.link, c.at, c.key_id, c.signature
       from event_log l
       ${filter ? '' : 'left'} join events e on e.org_id = $1 and e.occurred_at = l.occurred_at and e.id = l.event_id
       left join event_checkpoints c on c.org_id = $1 and c.seq = l.seq
       where ${where.text}
       order by l.seq`,
      values: where.values,
    },
    BATCH,
  );
  for await (const rows of batches) yield rows.map((row) => toEntry(orgId, row));
}

function toEntry(orgId: string, row: Row): ExportedEntry {
  const [seq, event_id, occurred_at, leaf, unmarked, link, org_id, ...rest] = row;
  const [category, event_type, actor, payload, resource_id, signed, at, key_id, signature] = rest;
  const event =
    org_id === null
      ? null
      : { org_id, id: event_id, occurred_at, category, event_type, actor, payload, resource_id };
  const checkpoint = signed && { org_id: orgId, seq, link: signed, at, key_id, signature };
  return { seq, event_id, occurred_at, leaf, unmarked, link, event, checkpoint };
}

/** The link of an entry that is in the log. */
export async function readLink(tx: Transaction, orgId: string, seq: number): Promise<Buffer> {
  const { rows } = await tx.query<{ link: Buffer }>(
    'select link from event_log where org_id = $1 and seq = $2',
    [orgId, seq],
  );
  return rows[0]!.link;
}
