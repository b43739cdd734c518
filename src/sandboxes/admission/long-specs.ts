import type { Sql } from '../../db/pool.js';
import { hasSpec, type SandboxTextRow } from '../row.js';

/** Adds the specifications that a short read left out. `pageSize`: the rows before one that does not fit the page. */
export async function withLongSpecs(
  sql: Sql,
  orgId: string,
  found: readonly SandboxTextRow[],
  maxBytes: number,
): Promise<{ rows: readonly SandboxTextRow[]; pageSize: number }> {
  const long = found.filter((row) => !hasSpec(row)).map(({ id }) => String(id));
  if (long.length === 0) return { rows: found, pageSize: found.length };
  const specs = await readSpecs(sql, orgId, long, maxBytes);
  const rows = found.map((row) => ({ ...row, ...specs.get(String(row.id)) }));
  const missing = rows.findIndex((row) => !hasSpec(row));
  return { rows, pageSize: missing === -1 ? rows.length : missing };
}

type Spec = Pick<SandboxTextRow, 'spec' | 'spec_format'>;

/**
 * The first specification, and the next ones up to `maxBytes`. Those beyond it as stored are not decompressed to
 * measure them.
 */
async function readSpecs(
  sql: Sql,
  orgId: string,
  ids: readonly string[],
  maxBytes: number,
): Promise<Map<string, Spec>> {
  const { rows } = await sql.query<Spec & { id: string }>(
    `select id, case when row_number() over upward = 1 or sum(length) over upward <= $3::bigint then spec::text else '' end as spec, spec_format
     from (
       select *, case when sum(stored) over upward - stored < $3::bigint then octet_length(spec::text) else $3::bigint + 1 end as length
       from (
         select s.id, s.spec, s.spec_format, pg_column_size(s.spec) as stored, place
         from unnest($2::uuid[]) with ordinality as wanted (id, place)
           join sandboxes s on s.org_id = $1 and s.id = wanted.id
         offset 0
       ) found
       window upward as (order by place)
     ) measured
     window upward as (order by place)`,
    [orgId, ids, maxBytes],
  );
  return new Map(rows.map(({ id, ...spec }) => [id, spec]));
}
