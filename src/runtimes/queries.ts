import type { Sql } from '../db/pool.js';
import type { Installation } from './plan.js';

/** The runtime this installation was served with last, and how many sandboxes each runtime still holds. */
export async function readInstallation(sql: Sql): Promise<Installation> {
  const { rows } = await sql.query<{ runtime: string | null }>('select runtime from instance');
  const { rows: counts } = await sql.query<{ runtime: string; count: number }>(
    `select runtime, count(*) as count from sandboxes
     where runtime is not null and destroyed_at is null
     group by runtime`,
  );
  return {
    runtime: rows[0]!.runtime,
    sandboxes: new Map(counts.map(({ runtime, count }) => [runtime, count])),
  };
}

export async function rememberRuntime(sql: Sql, runtime: string): Promise<void> {
  await sql.query('update instance set runtime = $1 where runtime is distinct from $1', [runtime]);
}
