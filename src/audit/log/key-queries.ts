import { ADVISORY_LOCKS, lockAdvisory } from '../../db/advisory-locks.js';
import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';
import type { PublicKey } from '../events/event-keys.js';

export async function lockKeys(tx: Sql): Promise<void> {
  await lockAdvisory(tx, ADVISORY_LOCKS.eventKeys);
}

/** Registers a public key as the newest, also when the clock was set back. */
export async function insertPublicKey(sql: Sql, { id, bytes }: PublicKey, at: Instant): Promise<void> {
  await sql.query(
    `insert into event_keys (id, public_key, added_at)
     select $1, $2, greatest($3::timestamptz, max(added_at) + interval '1 microsecond') from event_keys
     on conflict do nothing`,
    [id, bytes, at],
  );
}

export async function newestKeyId(sql: Sql): Promise<string | undefined> {
  const { rows } = await sql.query<{ id: string }>(
    'select id from event_keys order by added_at desc limit 1',
  );
  return rows.at(0)?.id;
}

export async function registeredKeyIds(sql: Sql): Promise<string[]> {
  const { rows } = await sql.query<{ id: string }>('select id from event_keys order by added_at');
  return rows.map(({ id }) => id);
}

export async function unknownKeyIds(sql: Sql, known: readonly PublicKey[]): Promise<string[]> {
  const ids = new Set(known.map(({ id }) => id));
  return (await registeredKeyIds(sql)).filter((id) => !ids.has(id));
}
