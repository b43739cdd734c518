import { readServedRuntime } from '../db/instance-queries.js';
import type { Sql } from '../db/pool.js';
import type { Installation } from './plan.js';

export async function readInstallation(sql: Sql): Promise<Installation> {
  const { rows } = await sql.query<{ runtime: string; count: number }>(
    `select runtime, count(*) as count from sandboxes
     where runtime is not null and destroyed_at is null
     group by runtime`,
  );
  return {
    runtime: await readServedRuntime(sql),
    sandboxes: new Map(rows.map(({ runtime, count }) => [runtime, count])),
  };
}

/** The ids of the engines of an installation. */
export async function workerIds(sql: Sql): Promise<ReadonlySet<string>> {
  const { rows } = await sql.query<{ id: string }>('select id from workers');
  return new Set(rows.map(({ id }) => id));
}

/** All that the installation has ever served, unless the operator removed the workers of one. */
export async function servedRuntimes(sql: Sql): Promise<ReadonlySet<string>> {
  const { rows } = await sql.query<{ runtime: string }>(
    `select runtime from workers
     union select runtime from instance where runtime is not null
     union select runtime from sandboxes where runtime is not null`,
  );
  return new Set(rows.map(({ runtime }) => runtime));
}
