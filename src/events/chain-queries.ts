import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import type { EventContent } from './canonical.js';
import type { Checkpoint } from './checkpoint.js';
import type { PublicKey } from './signing-key.js';

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
  key_id: string | null;
  retention_months: number | null;
}

const CHAIN = 'seq, link, at, key_id, retention_months';

/** Locks the end of an organization's log; undefined while another holds it, unless `wait`. */
export async function lockChain(tx: Sql, orgId: string, { wait = false } = {}): Promise<Chain | undefined> {
  await tx.query('insert into event_chains (org_id) values ($1) on conflict do nothing', [orgId]);
  const { rows } = await tx.query<Chain & Record<string, unknown>>(
    `select ${CHAIN} from event_chains where org_id = $1 for update ${wait ? '' : 'skip locked'}`,
    [orgId],
  );
  return rows[0];
}

export type Unsealed = EventContent & { leaf: Buffer | null };

/** Committed events that are not in the log, in the order of their times, for who holds the chain. */
export async function readUnsealed(tx: Sql, orgId: string, limit: number): Promise<Unsealed[]> {
  // What is in the queue and not among the events was removed from them: it stays, for those who verify.
  const { rows } = await tx.query<Unsealed & Record<string, unknown>>(
    `select e.org_id, e.id, e.occurred_at, e.leaf, e.resource_id,
       case when e.leaf is null then e.category end as category,
       case when e.leaf is null then e.event_type end as event_type,
       case when e.leaf is null then e.actor end as actor,
       case when e.leaf is null then e.payload end as payload
     from unsealed_events u
     join events e on e.org_id = u.org_id and e.occurred_at = u.occurred_at and e.id = u.event_id
     where u.org_id = $1
     order by u.occurred_at, u.event_id
     limit $2`,
    [orgId, limit],
  );
  return rows;
}

export interface NewEntry {
  seq: number;
  event_id: string;
  occurred_at: Instant;
  leaf: Buffer;
  link: Buffer;
}

/** Puts entries at the end of the log and takes their events out of the queue. */
export async function appendEntries(tx: Sql, orgId: string, entries: readonly NewEntry[]): Promise<void> {
  const ids = entries.map(({ event_id }) => event_id);
  const times = entries.map(({ occurred_at }) => occurred_at);
  await tx.query(
    `insert into event_log (org_id, seq, event_id, occurred_at, leaf, link)
     select $1, * from unnest($2::bigint[], $3::uuid[], $4::timestamptz[], $5::bytea[], $6::bytea[])`,
    [
      orgId,
      entries.map(({ seq }) => seq),
      ...[ids, times],
      entries.map(({ leaf }) => leaf),
      entries.map(({ link }) => link),
    ],
  );
  await tx.query(
    `delete from unsealed_events u
     using unnest($2::timestamptz[], $3::uuid[]) as sealed (occurred_at, event_id)
     where u.org_id = $1 and u.occurred_at = sealed.occurred_at and u.event_id = sealed.event_id`,
    [orgId, times, ids],
  );
}

/** The end of the log, signed; kept among the checkpoints too when `keep`. */
export async function writeEnd(tx: Sql, end: Checkpoint, keep: boolean): Promise<void> {
  const { org_id, seq, link, at, key_id, signature } = end;
  const values = [org_id, seq, link, at, key_id, signature];
  await tx.query(
    `update event_chains set seq = $2, link = $3, at = $4, key_id = $5, signature = $6 where org_id = $1`,
    values,
  );
  if (!keep) return;
  await tx.query(
    `insert into event_checkpoints (org_id, seq, link, at, key_id, signature) values ($1, $2, $3, $4, $5, $6)`,
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

/** Notes the public half of a key that signs. */
export async function keepPublicKey(sql: Sql, { id, bytes }: PublicKey, at: Instant): Promise<void> {
  await sql.query(
    'insert into event_keys (id, public_key, added_at) values ($1, $2, $3) on conflict do nothing',
    [id, bytes, at],
  );
}

/** The keys that signed and are not among these. */
export async function otherKeys(sql: Sql, known: readonly PublicKey[]): Promise<string[]> {
  const { rows } = await sql.query<{ id: string }>(
    'select id from event_keys where not (id = any ($1)) order by added_at',
    [known.map(({ id }) => id)],
  );
  return rows.map(({ id }) => id);
}
