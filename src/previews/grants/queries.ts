import type { EventActor } from '../../audit/events/schema.js';
import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';
import type { HostForm } from '../types.js';

export interface PreviewRow {
  org_id: string;
  id: string;
  sandbox_id: string;
  port: number;
  path: string;
  label: string | null;
  host_form: HostForm;
  is_public: boolean;
  created_by: EventActor;
  created_at: Instant;
  expires_at: Instant;
  revoked_at: Instant | null;
  last_used_at: Instant | null;
}

export interface NewPreview extends PreviewRow {
  key_id: string;
  grant_hash: Buffer | null;
  cookie_hash: Buffer | null;
}

/** A row as it opens a port, or no longer does. */
export interface GrantRow {
  org_id: string;
  id: string;
  sandbox_id: string;
  sandbox_name: string;
  org_name: string;
  key_id: string;
  port: number;
  host_form: HostForm;
  grant_hash: Buffer | null;
  cookie_hash: Buffer | null;
  expires_at: Instant;
  status: string;
  wakes: boolean;
  notice: boolean;
  is_open: boolean;
}

const SHOWN = `p.org_id, p.id, p.sandbox_id, p.port, p.path, p.label, p.host_form, p.is_public, p.created_by,
  p.created_at, p.expires_at, least(p.revoked_at, k.revoked_at) as revoked_at, p.last_used_at`;
const JOINED = `previews p
  join sandboxes s on s.org_id = p.org_id and s.id = p.sandbox_id
  join orgs o on o.id = p.org_id
  join api_keys k on k.org_id = p.org_id and k.id = p.key_id`;
/**
 * `$1`: the current time. A preview does no more than the key that made it: it ends with the key, and when the sandbox
 * loses the labels that the key is limited to.
 */
const IS_OPEN = `(p.revoked_at is null and p.expires_at > $1 and s.removed_at is null and k.revoked_at is null
  and (k.labels = '{}' or (s.spec -> 'labels')::jsonb @> k.labels) and (o.public_previews or not p.is_public))`;
const GRANT = `p.org_id, p.id, p.sandbox_id, s.name as sandbox_name, o.name as org_name, p.key_id, p.port, p.host_form,
  p.grant_hash, p.cookie_hash, p.expires_at, s.status, o.preview_notice as notice, ${IS_OPEN} as is_open,
  (coalesce((s.spec -> 'lifecycle' ->> 'wake_on_request')::boolean, false)
    or s.spec -> 'lifecycle' ->> 'on_idle' = 'pause' is true) as wakes`;

export async function insertPreview(sql: Sql, preview: NewPreview): Promise<void> {
  await sql.query(
    `insert into previews (org_id, id, sandbox_id, port, path, label, host_form, is_public, grant_hash, cookie_hash,
       created_by, key_id, created_at, expires_at)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
    [
      preview.org_id,
      preview.id,
      preview.sandbox_id,
      preview.port,
      preview.path,
      preview.label,
      preview.host_form,
      preview.is_public,
      preview.grant_hash,
      preview.cookie_hash,
      JSON.stringify(preview.created_by),
      preview.key_id,
      preview.created_at,
      preview.expires_at,
    ],
  );
}

export async function countOpen(sql: Sql, orgId: string, sandboxId: string, at: Instant): Promise<number> {
  const { rows } = await sql.query<{ count: number }>(
    `select count(*)::int as count from ${JOINED} where p.org_id = $2 and p.sandbox_id = $3 and ${IS_OPEN}`,
    [at, orgId, sandboxId],
  );
  return rows[0]!.count;
}

/** The open previews of a sandbox, the oldest first, `limit` at most, after `after` (created_at, id). */
export async function pageOpen(
  sql: Sql,
  orgId: string,
  sandboxId: string,
  { at, after, limit }: { at: Instant; after: readonly [Instant, string] | undefined; limit: number },
): Promise<PreviewRow[]> {
  const { rows } = await sql.query<PreviewRow & Record<string, unknown>>(
    `select ${SHOWN} from ${JOINED}
     where p.org_id = $2 and p.sandbox_id = $3 and ${IS_OPEN}
       and ($4::timestamptz is null or (p.created_at, p.id) > ($4, $5::uuid))
     order by p.created_at, p.id
     limit $6`,
    [at, orgId, sandboxId, after?.[0] ?? null, after?.[1] ?? null, limit],
  );
  return rows;
}

export async function getPreview(
  sql: Sql,
  orgId: string,
  sandboxId: string,
  id: string,
): Promise<PreviewRow | undefined> {
  const { rows } = await sql.query<PreviewRow & Record<string, unknown>>(
    `select ${SHOWN} from ${JOINED} where p.org_id = $1 and p.sandbox_id = $2 and p.id = $3`,
    [orgId, sandboxId, id],
  );
  return rows[0];
}

/** Returns whether it was the first revocation. */
export async function setRevoked(sql: Sql, orgId: string, id: string, at: Instant): Promise<boolean> {
  const { rowCount } = await sql.query(
    'update previews set revoked_at = $3 where org_id = $1 and id = $2 and revoked_at is null',
    [orgId, id, at],
  );
  return rowCount === 1;
}

export interface Place {
  sandboxId: string;
  port: number;
  /** The hash of a token or a cookie. Undefined: a public preview is looked for. */
  hash: Buffer | undefined;
}

/**
 * The rows that the places stand for, in their order, ended ones too. Nothing is bound to an organization yet. The
 * preview that ends last stands for all public ones of its port.
 */
export async function findGrants(
  sql: Sql,
  places: readonly Place[],
  at: Instant,
): Promise<(GrantRow | undefined)[]> {
  const hashes = places.flatMap(({ hash }) => (hash ? [hash] : []));
  const open = places.filter(({ hash }) => !hash);
  const { rows } = await sql.query<GrantRow & Record<string, unknown>>(
    `select ${GRANT} from ${JOINED} where p.grant_hash = any ($2)
     union all
     select ${GRANT} from ${JOINED} where p.cookie_hash = any ($2)
     union all
     select newest.* from (select distinct * from unnest($3::uuid[], $4::int[])) as place (sandbox_id, port)
     cross join lateral (
       select ${GRANT} from ${JOINED}
       where p.sandbox_id = place.sandbox_id and p.port = place.port and p.is_public and ${IS_OPEN}
       order by p.expires_at desc limit 1) as newest`,
    [at, hashes, open.map(({ sandboxId }) => sandboxId), open.map(({ port }) => port)],
  );
  return places.map((place) => rows.find((row) => isAt(row, place)));
}

/** The same by the ids of previews, without those that have ended. */
export async function findOpen(sql: Sql, ids: readonly string[], at: Instant): Promise<GrantRow[]> {
  const { rows } = await sql.query<GrantRow & Record<string, unknown>>(
    `select ${GRANT} from ${JOINED} where p.id = any ($2::uuid[]) and ${IS_OPEN}`,
    [at, ids],
  );
  return rows;
}

function isAt({ sandbox_id, port, grant_hash, cookie_hash }: GrantRow, place: Place): boolean {
  if (sandbox_id !== place.sandboxId || port !== place.port) return false;
  const { hash } = place;
  if (!hash) return grant_hash === null;
  return [grant_hash, cookie_hash].some((each) => each?.equals(hash) === true);
}

/** Notes the uses, unless one was noted within `seconds`: a row is written once in that time. */
export async function setUsed(
  sql: Sql,
  uses: readonly { orgId: string; id: string; at: Instant }[],
  seconds: number,
): Promise<void> {
  await sql.query(
    `update previews p set last_used_at = used.at
     from unnest($1::uuid[], $2::uuid[], $3::timestamptz[]) as used (org_id, id, at)
     where p.org_id = used.org_id and p.id = used.id
       and (p.last_used_at is null or p.last_used_at <= used.at - make_interval(secs => $4))`,
    [uses.map(({ orgId }) => orgId), uses.map(({ id }) => id), uses.map(({ at }) => at), seconds],
  );
}

/** Deletes previews that ended before a time, `limit` at most. Returns their number. */
export async function deleteEnded(sql: Sql, before: Instant, limit: number): Promise<number> {
  const { rowCount } = await sql.query(
    `delete from previews where (org_id, id) in (
       select org_id, id from previews where least(expires_at, revoked_at) < $1 limit $2 for update skip locked)`,
    [before, limit],
  );
  return rowCount ?? 0;
}
