import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';

/** Takes up to `limit` volumes whose last reading was before `dueAt`, for this process: the next asks for others. */
export async function claimUnsampled(
  sql: Sql,
  dueAt: Instant,
  at: Instant,
  limit: number,
): Promise<{ org_id: string; id: string }[]> {
  const { rows } = await sql.query<{ org_id: string; id: string }>(
    `update volumes v set sampled_at = $2
     from (
       select org_id, id from volumes
       where status = 'active' and removed_at is null and coalesce(sampled_at, created_at) <= $1
       order by coalesce(sampled_at, created_at)
       limit $3
       for update skip locked) due
     where v.org_id = due.org_id and v.id = due.id
     returning v.org_id, v.id`,
    [dueAt, at, limit],
  );
  return rows;
}

/**
 * Writes a reading: the interval before it ends with it, and its own ends at `until` or at a later reading that is there already. No two
 * intervals of a volume overlap by it, whichever way the clock was set. 1/1024 is a finite decimal, so nothing is rounded.
 */
export async function insertReading(
  sql: Sql,
  orgId: string,
  volumeId: string,
  { at, until, kib }: { at: Instant; until: Instant; kib: number },
): Promise<void> {
  await endAccrual(sql, orgId, volumeId, at);
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

/** What is stored stops counting: the interval under way ends. */
export async function endAccrual(sql: Sql, orgId: string, volumeId: string, at: Instant): Promise<void> {
  await sql.query(
    `update accruals set to_at = $3
     where org_id = $1 and volume_id = $2 and from_at < $3 and to_at > $3`,
    [orgId, volumeId, at],
  );
}
