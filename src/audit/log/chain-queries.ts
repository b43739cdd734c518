import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';
import type { PublicKey } from '../events/event-keys.js';
import type { LogPosition } from '../events/hash-chain.js';
import type { Checkpoint } from './checkpoint.js';
import type { LogEntry } from './log-entry.js';

export async function orgsSignedByOthers(sql: Sql, { id }: PublicKey): Promise<string[]> {
  const { rows } = await sql.query<{ org_id: string }>(
    'select org_id from event_chains where key_id <> $1 order by org_id',
    [id],
  );
  return rows.map(({ org_id }) => org_id);
}

/** The head of an organization's log. The fields that can be null are null while the log is empty. */
export interface ChainHead {
  seq: number;
  link: Buffer | null;
  at: Instant | null;
  /** The first entry with a mark; null: no entry has one. */
  marked_from: number | null;
  key_id: string | null;
  signature: Buffer | null;
  retention_months: number | null;
}

const HEAD = 'seq, link, at, marked_from, key_id, signature, retention_months';
const CHECKPOINT = 'org_id, seq, link, at, marked_from, key_id, signature';

/** Locks the head of an organization's log. Undefined: another transaction holds the lock, and `wait` is false. */
export async function lockHead(
  tx: Sql,
  orgId: string,
  { wait = false } = {},
): Promise<ChainHead | undefined> {
  await tx.query('insert into event_chains (org_id) values ($1) on conflict do nothing', [orgId]);
  const { rows } = await tx.query<ChainHead & Record<string, unknown>>(
    `select ${HEAD} from event_chains where org_id = $1 for update ${wait ? '' : 'skip locked'}`,
    [orgId],
  );
  return rows.at(0);
}

/** The last position in any table other than that of heads; undefined for an empty log. */
export async function lastRecordedPosition(tx: Sql, orgId: string): Promise<LogPosition | undefined> {
  const { rows } = await tx.query<LogPosition & Record<string, unknown>>(
    `select seq, link from (
       (select seq, link from event_log where org_id = $1 order by seq desc limit 1)
       union all
       (select seq, link from event_checkpoints where org_id = $1 order by seq desc limit 1)
       union all
       (select seq, link from event_drops where org_id = $1 order by seq desc limit 1)
     ) positions
     order by seq desc limit 1`,
    [orgId],
  );
  return rows.at(0);
}

export async function linkAt(sql: Sql, orgId: string, seq: number): Promise<Buffer | undefined> {
  const { rows } = await sql.query<{ link: Buffer }>(
    'select link from event_log where org_id = $1 and seq = $2',
    [orgId, seq],
  );
  return rows.at(0)?.link;
}

export async function linksAt(
  sql: Sql,
  orgId: string,
  seqs: readonly number[],
): Promise<Map<number, Buffer>> {
  const { rows } = await sql.query<{ seq: number; link: Buffer }>(
    'select seq, link from event_log where org_id = $1 and seq = any ($2::bigint[])',
    [orgId, seqs],
  );
  return new Map(rows.map(({ seq, link }) => [seq, link]));
}

export type NewEntry = Omit<LogEntry, 'event'>;

export async function appendEntries(tx: Sql, orgId: string, entries: readonly NewEntry[]): Promise<void> {
  await tx.query(
    `insert into event_log (org_id, seq, event_id, occurred_at, leaf, unmarked, link)
     select $1, *
     from unnest($2::bigint[], $3::uuid[], $4::timestamptz[], $5::bytea[], $6::boolean[], $7::bytea[])`,
    [
      orgId,
      entries.map(({ seq }) => seq),
      entries.map(({ event_id }) => event_id),
      entries.map(({ occurred_at }) => occurred_at),
      entries.map(({ leaf }) => leaf),
      entries.map(({ unmarked }) => unmarked),
      entries.map(({ link }) => link),
    ],
  );
}

/** `keep`: the head is kept among the checkpoints too. */
export async function updateHead(tx: Sql, head: Checkpoint, keep: boolean): Promise<void> {
  const { org_id, seq, link, at, marked_from, key_id, signature } = head;
  const values = [org_id, seq, link, at, marked_from, key_id, signature];
  await tx.query(
    `update event_chains set seq = $2, link = $3, at = $4, marked_from = $5, key_id = $6, signature = $7
     where org_id = $1`,
    values,
  );
  if (!keep) return;
  await tx.query(
    `insert into event_checkpoints (${CHECKPOINT})
     values ($1, $2, $3, $4, $5, $6, $7)`,
    values,
  );
}

export async function getHead(sql: Sql, orgId: string): Promise<Checkpoint | undefined> {
  const { rows } = await sql.query<Checkpoint & Record<string, unknown>>(
    `select ${CHECKPOINT} from event_chains where org_id = $1 and seq > 0`,
    [orgId],
  );
  return rows.at(0);
}

export async function latestCheckpoint(
  sql: Sql,
  orgId: string,
): Promise<{ seq: number; at: Instant } | undefined> {
  const { rows } = await sql.query<{ seq: number; at: Instant }>(
    'select seq, at from event_checkpoints where org_id = $1 order by seq desc limit 1',
    [orgId],
  );
  return rows.at(0);
}

export async function lastCheckpointAfter(
  sql: Sql,
  orgId: string,
  seq: number,
): Promise<Checkpoint | undefined> {
  const { rows } = await sql.query<Checkpoint & Record<string, unknown>>(
    `select ${CHECKPOINT} from event_checkpoints where org_id = $1 and seq > $2 order by seq desc limit 1`,
    [orgId, seq],
  );
  return rows.at(0);
}

/** The kept checkpoints at these entries, by their `seq`. `entries`: not empty, in order. */
export async function readCheckpoints(
  sql: Sql,
  orgId: string,
  entries: readonly LogEntry[],
): Promise<Map<number, Checkpoint>> {
  const { rows } = await sql.query<Checkpoint & Record<string, unknown>>(
    `select ${CHECKPOINT} from event_checkpoints where org_id = $1 and seq between $2 and $3`,
    [orgId, entries.at(0)!.seq, entries.at(-1)!.seq],
  );
  return new Map(rows.map((checkpoint) => [checkpoint.seq, checkpoint]));
}
