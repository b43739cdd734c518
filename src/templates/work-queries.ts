import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import { COLUMNS, type TemplateRow } from './queries.js';

type Row = TemplateRow & Record<string, unknown>;

/** The oldest one of each organization that waits on this engine, the oldest first. */
export async function nextOfEach(
  sql: Sql,
  workerId: string,
  except: readonly string[],
): Promise<TemplateRow[]> {
  const { rows } = await sql.query<Row>(
    `select ${COLUMNS} from (
       select distinct on (org_id) * from templates
       where worker_id = $1 and status = 'queued' and id <> all ($2::uuid[])
       order by org_id, created_at, id
     ) t
     order by t.created_at, t.id`,
    [workerId, except],
  );
  return rows;
}

/** Those that no process builds: `except` are those of this one. */
export async function interruptedBuilds(
  sql: Sql,
  workerId: string,
  except: readonly string[],
): Promise<TemplateRow[]> {
  const { rows } = await sql.query<Row>(
    `select ${COLUMNS} from templates t where t.worker_id = $1 and t.status = 'building' and t.id <> all ($2::uuid[])`,
    [workerId, except],
  );
  return rows;
}

/** Ended builds whose sandbox may still be there. */
export async function leftSandboxes(
  sql: Sql,
  workerId: string,
  except: readonly string[],
): Promise<(TemplateRow & { sandbox_id: string })[]> {
  const { rows } = await sql.query<Row & { sandbox_id: string }>(
    `select ${COLUMNS} from templates t
     where t.worker_id = $1 and t.sandbox_id is not null and t.status in ('succeeded', 'failed', 'cancelled')
       and t.id <> all ($2::uuid[])`,
    [workerId, except],
  );
  return rows;
}

/** Forgets builds that failed long ago, and templates that were deleted then, with their logs. */
export async function deleteOldBuilds(sql: Sql, endedBefore: Instant): Promise<void> {
  await sql.query(
    `delete from templates
     where completed_at < $1 and sandbox_id is null and (removed_at < $1 or status in ('failed', 'cancelled'))`,
    [endedBefore],
  );
}
