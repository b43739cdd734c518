import type { Sql } from '../db/pool.js';

/** The names of the sandboxes that mount a volume, whatever their status; sorted. */
export async function sandboxesMounting(sql: Sql, orgId: string, volumeId: string): Promise<string[]> {
  const { rows } = await sql.query<{ name: string }>(
    `select s.name from sandbox_volumes m
     join sandboxes s on s.org_id = m.org_id and s.id = m.sandbox_id
     where m.org_id = $1 and m.volume_id = $2 and s.removed_at is null
     order by s.name`,
    [orgId, volumeId],
  );
  return rows.map(({ name }) => name);
}
