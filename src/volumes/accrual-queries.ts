import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';

/** The organization that has waited longest comes first. */
export async function organizationsDue(sql: Sql, dueAt: Instant): Promise<string[]> {
  const { rows } = await sql.query<{ org_id: string }>(
    `select org_id from volumes
     where status = 'active' and removed_at is null and coalesce(sampled_at, created_at) <= $1
     group by org_id
     order by min(coalesce(sampled_at, created_at))`,
    [dueAt],
  );
  return rows.map(({ org_id }) => org_id);
}

/** A claim without a reading expires an interval after `heldAs`. */
export async function claimUnsampled(
  sql: Sql,
  orgId: string,
  dueAt: Instant,
  heldAs: Instant,
): Promise<string | undefined> {
  const { rows } = await sql.query<{ id: string }>(
    // Materialized: PostgreSQL may run a joined subquery once for each row, and lock another volume each time.
    `with due as materialized (
       select id from volumes
       where org_id = $1 and status = 'active' and removed_at is null and coalesce(sampled_at, created_at) <= $2
       order by coalesce(sampled_at, created_at)
       limit 1
       for update skip locked)
     update volumes v set sampled_at = $3
     from due
     where v.org_id = $1 and v.id = due.id
     returning v.id`,
    [orgId, dueAt, heldAs],
  );
  return rows[0]?.id;
}

export async function setSampled(sql: Sql, orgId: string, id: string, at: Instant): Promise<void> {
  await sql.query('update volumes set sampled_at = $3 where org_id = $1 and id = $2', [orgId, id, at]);
}

/** Ends the previous interval; intervals never overlap, even after a clock change. 1/1024 is a finite decimal. */
export async function insertReading(
  sql: Sql,
  orgId: string,
  volumeId: string,
  { at, until, kib }: { at: Instant; until: Instant; kib: number },
): Promise<void> {
  await sql.query(
    `update accruals set to_at = $3
     where org_id = $1 and volume_id = $2 and from_at < $3 and to_at > $3`,
    [orgId, volumeId, at],
  );
  await sql.query(
    `insert into accruals (org_id, volume_id, from_at, to_at, used_mib)
     values ($1, $2, $3, least($4::timestamptz,
       (select min(from_at) from accruals where org_id = $1 and volume_id = $2 and from_at > $3)),
       $5::numeric * 0.0009765625)
     on conflict (org_id, volume_id, from_at) do update set to_at = excluded.to_at, used_mib = excluded.used_mib`,
    [orgId, volumeId, at, until, kib],
  );
  await sql.query('update volumes set used_bytes = $3::bigint * 1024 where org_id = $1 and id = $2', [
    orgId,
    volumeId,
    kib,
  ]);
}

/** Also ends a reading of a worker whose clock is ahead. */
export async function endAccruals(sql: Sql, orgId: string, volumeId: string, at: Instant): Promise<void> {
  await sql.query(
    `update accruals set to_at = greatest(from_at, $3)
     where org_id = $1 and volume_id = $2 and to_at > $3`,
    [orgId, volumeId, at],
  );
}
