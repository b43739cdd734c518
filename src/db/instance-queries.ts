import { randomBytes } from 'node:crypto';
import { newId } from '../lib/uuid.js';
import type { Sql } from './pool.js';

/** The one row of the table `instance`: the settings that all processes of an installation share. */

export async function createInstance(sql: Sql): Promise<void> {
  await sql.query(
    'insert into instance (singleton, id, cursor_key) values (true, $1, $2) on conflict do nothing',
    [newId(), randomBytes(32)],
  );
}

export async function readInstance(sql: Sql): Promise<{ id: string; cursorKey: Buffer }> {
  const { rows } = await sql.query<{ id: string; cursor_key: Buffer }>('select id, cursor_key from instance');
  return { id: rows[0]!.id, cursorKey: rows[0]!.cursor_key };
}

/** Null: the installation has not been served yet. */
export async function readServedRuntime(sql: Sql): Promise<string | null> {
  const { rows } = await sql.query<{ runtime: string | null }>('select runtime from instance');
  return rows[0]!.runtime;
}

export async function setServedRuntime(sql: Sql, runtime: string): Promise<void> {
  await sql.query('update instance set runtime = $1 where runtime is distinct from $1', [runtime]);
}

/**
 * Returns the id of the key under which the installation seals secrets; `proposed` becomes that key when there is none.
 */
export async function agreeOnSecretKey(sql: Sql, proposed: string): Promise<string> {
  const { rows } = await sql.query<{ secret_key_id: string }>(
    'update instance set secret_key_id = coalesce(secret_key_id, $1) returning secret_key_id',
    [proposed],
  );
  return rows[0]!.secret_key_id;
}

export async function setSecretKey(sql: Sql, keyId: string): Promise<void> {
  await sql.query('update instance set secret_key_id = $1', [keyId]);
}

/** Sets the hash of the price book, and returns the previous one. Null: no price book. */
export async function exchangePriceBook(tx: Sql, sha256: string | null): Promise<string | null> {
  const { rows } = await tx.query<{ previous: string | null }>(
    'select price_book_sha256 as previous from instance for update',
  );
  const { previous } = rows[0]!;
  if (previous !== sha256) await tx.query('update instance set price_book_sha256 = $1', [sha256]);
  return previous;
}

/** The reason why no service may use the database. Null: it is in use, or its release has no such column. */
export async function readClosed(sql: Sql): Promise<string | null> {
  const { rows } = await sql.query<{ closed: string | null }>(
    "select to_jsonb(i) ->> 'closed' as closed from instance i",
  );
  return rows[0]?.closed ?? null;
}

export async function setClosed(sql: Sql, reason: string | null): Promise<void> {
  await sql.query('update instance set closed = $1', [reason]);
}

/**
 * The age of the latest scheduled backup that is complete, in seconds; without one, the age of the installation.
 * `made`: whether there is one.
 */
export async function readBackupAge(sql: Sql): Promise<{ secs: number; made: boolean }> {
  const { rows } = await sql.query<{ secs: number; made: boolean }>(
    `select backed_up_at is not null as made, extract(epoch from clock_timestamp() - coalesce(backed_up_at,
       (select min(applied_at) from schema_migrations), clock_timestamp()))::float8 as secs
     from instance`,
  );
  return rows[0]!;
}

/** `ageMs`: the time since the snapshot of the backup. */
export async function noteBackup(sql: Sql, ageMs: number): Promise<void> {
  await sql.query(
    "update instance set backed_up_at = clock_timestamp() - $1::float8 * interval '1 millisecond'",
    [ageMs],
  );
}
