import type { Pool, Sql } from '../db/pool.js';
import type { ImageAccess } from './image-access.js';

/** An organization that uses more references proves its access again, for those that it has not used for longest. */
export const MAX_REFERENCES = 1_000;

export function storedImageAccess(pool: Pool): ImageAccess {
  return {
    find: (orgId, reference) => findImageAccess(pool, orgId, reference),
    record: (orgId, reference, digest) =>
      recordImageAccess(pool, orgId, { reference, digest }, MAX_REFERENCES),
  };
}

async function findImageAccess(
  sql: Sql,
  orgId: string,
  reference: string,
): Promise<{ digest: string; ageMs: number } | undefined> {
  const { rows } = await sql.query<{ digest: string; ageMs: number }>(
    `select digest, (extract(epoch from clock_timestamp() - proved_at) * 1000)::float8 as "ageMs"
     from image_access where org_id = $1 and reference = $2`,
    [orgId, reference],
  );
  return rows[0];
}

/** `most`: the references that stay. */
export async function recordImageAccess(
  sql: Sql,
  orgId: string,
  { reference, digest }: { reference: string; digest: string },
  most: number,
): Promise<void> {
  await sql.query(
    `insert into image_access (org_id, reference, digest, proved_at) values ($1, $2, $3, clock_timestamp())
     on conflict (org_id, reference) do update set digest = excluded.digest, proved_at = excluded.proved_at`,
    [orgId, reference, digest],
  );
  await sql.query(
    `delete from image_access where org_id = $1 and reference in (
       select reference from image_access where org_id = $1 order by proved_at desc offset $2)`,
    [orgId, most],
  );
}
