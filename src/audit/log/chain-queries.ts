import type { Sql } from '../../db/pool.js';
import { monthAfter, startOfMonth, type Instant } from '../../lib/instant.js';
import type { EventContent } from '../events/content.js';
import type { PublicKey } from '../events/event-keys.js';
import { lengthOf, MOST_BYTES } from '../events/length.js';
import type { Checkpoint } from './checkpoint.js';

/** The organizations whose log ends in what another key signed. */
export async function orgsSignedByOthers(sql: Sql, { id }: PublicKey): Promise<string[]> {
  const { rows } = await sql.query<{ org_id: string }>(
    'select org_id from event_chains where key_id <> $1 order by org_id',
    [id],
  );
  return rows.map(({ org_id }) => org_id);
}

/** The organizations of which events are not in the log yet. */
export async function orgsWithUnsealed(sql: Sql): Promise<string[]> {
  // From one organization to the next by the index: after an import there may be millions of one.
  const { rows } = await sql.query<{ org_id: string }>(
    `with recursive orgs as (
       (select org_id from unsealed_events order by org_id limit 1)
       union all
       select (select u.org_id from unsealed_events u where u.org_id > o.org_id order by u.org_id limit 1)
       from orgs o where o.org_id is not null
     )
     select org_id from orgs where org_id is not null`,
  );
  return rows.map(({ org_id }) => org_id);
}

export interface Chain {
  seq: number;
  /** Null before the first entry. */
  link: Buffer | null;
  at: Instant | null;
  /** The first entry of an event of our own; null before that. */
  marked_from: number | null;
  key_id: string | null;
  signature: Buffer | null;
  retention_months: number | null;
}

const CHAIN = 'seq, link, at, marked_from, key_id, signature, retention_months';

/** Locks the end of an organization's log; undefined while another holds it, unless `wait`. */
export async function lockChain(tx: Sql, orgId: string, { wait = false } = {}): Promise<Chain | undefined> {
  await tx.query('insert into event_chains (org_id) values ($1) on conflict do nothing', [orgId]);
  const { rows } = await tx.query<Chain & Record<string, unknown>>(
    `select ${CHAIN} from event_chains where org_id = $1 for update ${wait ? '' : 'skip locked'}`,
    [orgId],
  );
  return rows[0];
}

/** The last place that anything but the chain itself knows of; undefined when nothing was sealed yet. */
export async function lastKnownPlace(
  tx: Sql,
  orgId: string,
): Promise<{ seq: number; link: Buffer } | undefined> {
  const { rows } = await tx.query<{ seq: number; link: Buffer }>(
    `select seq, link from (
       (select seq, link from event_log where org_id = $1 order by seq desc limit 1)
       union all
       (select seq, link from event_checkpoints where org_id = $1 order by seq desc limit 1)
       union all
       (select seq, link from event_drops where org_id = $1 order by seq desc limit 1)
     ) places
     order by seq desc limit 1`,
    [orgId],
  );
  return rows[0];
}

/** The link of an entry that is there. */
export async function linkAt(sql: Sql, orgId: string, seq: number): Promise<Buffer | undefined> {
  const { rows } = await sql.query<{ link: Buffer }>(
    'select link from event_log where org_id = $1 and seq = $2',
    [orgId, seq],
  );
  return rows[0]?.link;
}

export type Unsealed = EventContent & { place: number; leaf: Buffer | null; mark: Buffer | null };

/**
 * A part of the queue, by places, both inclusive. Whoever goes through it in batches begins behind the last: of what was sealed the
 * traces stay as long as anybody has an old snapshot. And he ends where the queue ended when he began: what came of an event that was
 * not committed by then lies behind that.
 */
export interface Round {
  from: number;
  upTo: number;
}

/**
 * Committed events that are not in the log, in the order in which they were written: of a round, or of a new one. `limit` at most, and
 * fewer where events are long. `left`: what of the round is to be read after them. `whole`: also what those have a hash of that do.
 */
export async function readUnsealed(
  tx: Sql,
  orgId: string,
  round: Round | undefined,
  { limit, whole = false }: { limit: number; whole?: boolean },
): Promise<{ events: Unsealed[]; left: Round | undefined }> {
  const { rows: bounds } = await tx.query<
    Record<'first' | 'last', Instant | null> & Record<'low' | 'high', number>
  >(
    `select min(occurred_at) as first, max(occurred_at) as last, min(place) as low, max(place) as high
     from unsealed_events where org_id = $1`,
    [orgId],
  );
  const { first, last, low, high } = bounds[0]!;
  if (first === null || last === null) return { events: [], left: undefined };
  const { from: lowest, upTo } = round ?? { from: low, upTo: high };
  // By whole months, for what comes between the two queries; what for: see window.ts.
  const [from, to] = [startOfMonth(first), monthAfter(startOfMonth(last))];
  // What is in the queue and not among the events was removed from them: it stays, for those who verify.
  const { rows } = await tx.query<Unsealed & { fits: boolean } & Record<string, unknown>>(
    `select place, org_id, id, occurred_at, leaf, mark, resource_id, fits,
       case when leaf is null or $7 then category end as category,
       case when leaf is null or $7 then event_type end as event_type,
       case when leaf is null or $7 then actor end as actor,
       case when (leaf is null or $7) and fits then payload end as payload
     from (
       select *, sum(length) over (order by place) - length < ${MOST_BYTES} as fits
       from (
         select u.place, e.*
         from unsealed_events u
         cross join lateral (
           select *, case when leaf is null or $7 then ${lengthOf('payload')} else 0 end as length
           from events
           where org_id = u.org_id and occurred_at = u.occurred_at and id = u.event_id
             and occurred_at >= $5 and occurred_at < $6
           offset 0
         ) e
         where u.org_id = $1 and u.place >= $2 and u.place <= $3
         order by u.place
         limit $4
       ) waiting
     ) measured
     order by place`,
    [orgId, lowest, upTo, limit, from, to, whole],
  );
  const events = rows.filter(({ fits }) => fits);
  const more = rows.length === limit || events.length < rows.length;
  return { events, left: more ? { from: events.at(-1)!.place + 1, upTo } : undefined };
}

export interface NewEntry {
  /** In the queue. */
  place: number;
  seq: number;
  event_id: string;
  occurred_at: Instant;
  leaf: Buffer;
  unmarked: boolean;
  link: Buffer;
}

/** Puts entries at the end of the log and takes their events out of the queue. */
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
  await tx.query('delete from unsealed_events where org_id = $1 and place = any ($2::bigint[])', [
    orgId,
    entries.map(({ place }) => place),
  ]);
}

/** The end of the log, signed; kept among the checkpoints too when `keep`. */
export async function writeEnd(tx: Sql, end: Checkpoint, keep: boolean): Promise<void> {
  const { org_id, seq, link, at, marked_from, key_id, signature } = end;
  const values = [org_id, seq, link, at, marked_from, key_id, signature];
  await tx.query(
    `update event_chains set seq = $2, link = $3, at = $4, marked_from = $5, key_id = $6, signature = $7
     where org_id = $1`,
    values,
  );
  if (!keep) return;
  await tx.query(
    `insert into event_checkpoints (org_id, seq, link, at, marked_from, key_id, signature)
     values ($1, $2, $3, $4, $5, $6, $7)`,
    values,
  );
}

/** The place of the latest checkpoint that is kept. */
export async function latestCheckpoint(
  sql: Sql,
  orgId: string,
): Promise<{ seq: number; at: Instant } | undefined> {
  const { rows } = await sql.query<{ seq: number; at: Instant }>(
    'select seq, at from event_checkpoints where org_id = $1 order by seq desc limit 1',
    [orgId],
  );
  return rows[0];
}

/** Until the transaction ends nobody else who locks them notes a key. */
export async function lockKeys(tx: Sql): Promise<void> {
  await tx.query("select pg_advisory_xact_lock(hashtextextended('event keys', 0))");
}

/** Notes the public half of a key that signs and marks, as the newest, whatever the clocks say. */
export async function keepPublicKey(sql: Sql, { id, bytes }: PublicKey, at: Instant): Promise<void> {
  await sql.query(
    `insert into event_keys (id, public_key, added_at)
     select $1, $2, greatest($3::timestamptz, max(added_at) + interval '1 microsecond') from event_keys
     on conflict do nothing`,
    [id, bytes, at],
  );
}

/** The key that was noted last. */
export async function newestKey(sql: Sql): Promise<string | undefined> {
  const { rows } = await sql.query<{ id: string }>(
    'select id from event_keys order by added_at desc limit 1',
  );
  return rows[0]?.id;
}

/** The keys that were noted and are not among these. */
export async function otherKeys(sql: Sql, known: readonly PublicKey[]): Promise<string[]> {
  const { rows } = await sql.query<{ id: string }>(
    'select id from event_keys where not (id = any ($1)) order by added_at',
    [known.map(({ id }) => id)],
  );
  return rows.map(({ id }) => id);
}
