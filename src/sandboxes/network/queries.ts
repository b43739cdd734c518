import type { Sql } from '../../db/pool.js';

export interface ObservedSandbox {
  id: string;
  org_id: string;
  name: string;
  is_removed: boolean;
  is_recorded: boolean;
}

/** The sandboxes with these ids, by id. Removed ones too. `orgs`: the organization of each. */
export async function getObserved(
  sql: Sql,
  orgs: ReadonlyMap<string, string>,
): Promise<Map<string, ObservedSandbox>> {
  const { rows } = await sql.query<ObservedSandbox & Record<string, unknown>>(
    `select s.id, s.org_id, s.name, s.removed_at is not null as is_removed,
       o.network_record or coalesce((s.run_spec ->> 'networkRecord')::boolean, false) as is_recorded
     from unnest($1::uuid[], $2::uuid[]) as wanted (org_id, id)
     join sandboxes s on s.org_id = wanted.org_id and s.id = wanted.id
     join orgs o on o.id = s.org_id`,
    [[...orgs.values()], [...orgs.keys()]],
  );
  return new Map(rows.map((row) => [row.id, row]));
}
