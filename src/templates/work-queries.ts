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

/** Those of the builds that have ended. */
export async function endedAmong(sql: Sql, ids: readonly string[]): Promise<string[]> {
  const { rows } = await sql.query<{ id: string }>(
    `select b.id from unnest($1::uuid[]) b (id) where not exists (
       select from templates t where t.id = b.id and t.status in ('queued', 'building'))`,
    [ids],
  );
  return rows.map(({ id }) => id);
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

/** The builds of an engine that have not ended, and the templates on it. */
export async function lockTemplatesOn(tx: Sql, workerId: string): Promise<TemplateRow[]> {
  const { rows } = await tx.query<Row>(
    `select ${COLUMNS} from templates t
     where t.worker_id = $1 and t.status in ('queued', 'building', 'succeeded') and t.removed_at is null
     order by t.org_id, t.id for update`,
    [workerId],
  );
  return rows;
}

/** The sandboxes of builds on an engine are gone, and nothing removes them. */
export async function detachSandboxes(sql: Sql, workerId: string): Promise<void> {
  await sql.query('update templates set sandbox_id = null where worker_id = $1 and sandbox_id is not null', [
    workerId,
  ]);
}

/**
 * The builds of any engine whose time ended before `endedBefore`, and those that wait for an engine that no process has
 * served since `awaySince`.
 */
export async function overdueBuilds(
  sql: Sql,
  { endedBefore, awaySince }: { endedBefore: Instant; awaySince: Instant },
  limit: number,
): Promise<Pick<TemplateRow, 'org_id' | 'id' | 'status'>[]> {
  const { rows } = await sql.query<Row>(
    `select t.org_id, t.id, t.status from templates t left join workers w on w.id = t.worker_id
     where (t.status = 'building' and t.started_at + t.timeout_secs * interval '1 second' < $1)
       or (t.status = 'queued' and t.created_at < $2 and (w.id is null or w.expires_at < $2))
     order by t.created_at limit $3`,
    [endedBefore, awaySince, limit],
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
