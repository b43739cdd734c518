import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';

export interface PoolRef {
  orgId: string;
  poolId: string;
}

/**
 * The pools whose members are not as many and not as new as they should be, in turns: the one that was refilled the
 * longest ago is first. A pool that failed lately waits for its back-off, whatever it lacks: otherwise one that always
 * fails would be tried again in each pass.
 */
export async function poolsToTend(
  sql: Sql,
  runtime: string,
  at: Instant,
  most: number,
): Promise<{ due: PoolRef[]; exist: boolean }> {
  const { rows } = await sql.query<{ org_id: string; id: string; is_due: boolean }>(
    `select p.org_id, p.id,
       p.next_refill_at <= $2 and (m.ended > 0 or m.stale > 0 or m.live <> p.size or p.failures > 0
         or (m.newest is not null and m.newest is distinct from p.image_digest)
         or q.updated_at > p.refilled_at) as is_due
     from pools p
     join quotas q on q.org_id = p.org_id
     cross join lateral (
       select count(*) filter (where s.status in ('starting', 'running')) as live,
         count(*) filter (where s.status not in ('starting', 'running')) as ended,
         count(*) filter (where s.status = 'running' and s.image_digest <> p.image_digest) as stale,
         (array_agg(s.image_digest order by s.started_at desc) filter (where s.status = 'running'
           and s.started_at is not null and s.image_digest is not null))[1] as newest
       from sandboxes s
       where s.org_id = p.org_id and s.pool_id = p.id and s.removed_at is null and s.warm
     ) m
     where p.removed_at is null and p.runtime = $1
     order by 3 desc, p.refilled_at
     limit $3`,
    [runtime, at, most],
  );
  const due = rows.filter(({ is_due }) => is_due).map(({ org_id, id }) => ({ orgId: org_id, poolId: id }));
  return { due, exist: rows.length > 0 };
}

export interface Starts {
  /** The members that start now: of the pool, of its organization, and of all. */
  ofPool: number;
  ofOrg: number;
  ofAll: number;
  /** A start of a caller has no room. */
  isShort: boolean;
  /** Sandboxes of the pool that run, also those that it gave away. */
  running: number;
}

export async function readStarts(sql: Sql, { orgId, poolId }: PoolRef, runtime: string): Promise<Starts> {
  const { rows } = await sql.query<Starts & Record<string, unknown>>(
    `select (select count(*)::int from sandboxes s where s.org_id = $1 and s.pool_id = $2 and s.removed_at is null
         and s.warm and s.status = 'starting') as "ofPool",
       (select count(*)::int from sandboxes s where s.org_id = $1 and s.removed_at is null and s.warm
         and s.status = 'starting') as "ofOrg",
       (select count(*)::int from sandboxes s where s.removed_at is null and s.warm and s.status = 'starting' and s.runtime = $3) as "ofAll",
       exists (select from sandboxes s where s.status_reason = 'insufficient_capacity' and s.status = 'starting'
         and s.removed_at is null and s.runtime = $3 and not s.warm) as "isShort",
       (select count(*)::int from sandboxes s where s.org_id = $1 and s.pool_id = $2 and s.removed_at is null
         and s.status in ('starting', 'running', 'stopping')) as running`,
    [orgId, poolId, runtime],
  );
  return rows[0]!;
}

/** The pools with `pull_policy: always` whose tags were checked before `before`. */
export async function poolsToCheck(sql: Sql, runtime: string, before: Instant): Promise<PoolRef[]> {
  const { rows } = await sql.query<{ org_id: string; id: string }>(
    `select org_id, id from pools
     where removed_at is null and runtime = $1 and request ->> 'pull_policy' = 'always' and tag_checked_at <= $2
       and image_digest is not null
     order by tag_checked_at limit 20`,
    [runtime, before],
  );
  return rows.map(({ org_id, id }) => ({ orgId: org_id, poolId: id }));
}

/** The ready members on the engine. */
export async function readyOn(sql: Sql, workerId: string): Promise<string[]> {
  const { rows } = await sql.query<{ id: string }>(
    `select s.id from sandboxes s
     where s.removed_at is null and s.warm and s.status = 'running' and s.worker_id = $1`,
    [workerId],
  );
  return rows.map(({ id }) => id);
}
