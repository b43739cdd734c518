import type { Sql } from '../db/pool.js';

/** `org`: the slug of the organization, where it was asked for. */
interface Counted extends Record<string, unknown> {
  org: string | null;
  count: number;
}

export async function countSandboxes(sql: Sql, byOrg: boolean): Promise<(Counted & { status: string })[]> {
  const { rows } = await sql.query<Counted & { status: string }>(
    byOrg
      ? `select o.slug as org, s.status, count(*) as count from sandboxes s join orgs o on o.id = s.org_id
         where s.removed_at is null group by o.slug, s.status`
      : `select null as org, status, count(*) as count from sandboxes where removed_at is null group by status`,
  );
  return rows;
}

/** `missing`: those that the sizes ask for beside the others. */
export async function countPoolSandboxes(
  sql: Sql,
): Promise<{ ready: number; starting: number; missing: number }> {
  const { rows } = await sql.query<{ ready: number; starting: number; missing: number }>(
    `select coalesce(sum(m.ready), 0)::int as ready, coalesce(sum(m.starting), 0)::int as starting,
       coalesce(sum(greatest(p.size - m.ready - m.starting, 0)), 0)::int as missing
     from pools p
     cross join lateral (
       select count(*) filter (where s.status = 'running') as ready, count(*) filter (where s.status = 'starting') as starting
       from sandboxes s where s.org_id = p.org_id and s.pool_id = p.id and s.removed_at is null and s.warm
     ) m
     where p.removed_at is null`,
  );
  return rows[0]!;
}

export interface QuotaUse extends Record<string, unknown> {
  org: string;
  quota: string;
  most: number;
  used: number;
}

/** The quotas of numbers of sandboxes that are limited. */
export async function readQuotaUse(sql: Sql): Promise<QuotaUse[]> {
  const { rows } = await sql.query<QuotaUse>(
    `select o.slug as org, l.quota, l.most, l.used
     from quotas q
     join orgs o on o.id = q.org_id
     left join lateral (
       select coalesce(sum(existing), 0) as existing, coalesce(sum(ephemeral_running), 0) as ephemeral,
         coalesce(sum(persistent_running), 0) as persistent
       from sandbox_counts c where c.org_id = q.org_id
     ) c on true
     cross join lateral (values
       ('max_sandboxes', q.max_sandboxes::float8, c.existing::float8),
       ('max_concurrent_ephemeral_running', q.max_concurrent_ephemeral_running, c.ephemeral),
       ('max_concurrent_persistent_running', q.max_concurrent_persistent_running, c.persistent)
     ) as l (quota, most, used)
     where l.most is not null`,
  );
  return rows;
}

/** The budgets that were checked. */
export async function readBudgetUse(sql: Sql): Promise<{ org: string; budget: string; ratio: number }[]> {
  const { rows } = await sql.query<{ org: string; budget: string; ratio: number }>(
    `select o.slug as org, b.name as budget, b.used_ratio as ratio
     from budgets b join orgs o on o.id = b.org_id
     where b.used_ratio is not null`,
  );
  return rows;
}

/** The oldest run that waits for a worker. */
export async function firstWaitingRun(sql: Sql): Promise<string | null> {
  const { rows } = await sql.query<{ id: string | null }>(
    `select id from runs where worker_id is null and started_at is null and end_reason is null order by id limit 1`,
  );
  return rows[0]?.id ?? null;
}

export interface LogState extends Record<string, unknown> {
  entries: number;
  unsealed: number;
  oldest_secs: number;
}

export async function readLogState(sql: Sql): Promise<LogState> {
  const { rows } = await sql.query<LogState>(
    `select (select coalesce(sum(seq), 0) from event_chains)::float8 as entries, count(*) as unsealed,
       coalesce(extract(epoch from clock_timestamp() - min(queued_at)), 0)::float8 as oldest_secs
     from unsealed_events`,
  );
  return rows[0]!;
}

export interface WebhookState extends Record<string, unknown> {
  active: number;
  failing: number;
  disabled_by_service: number;
  /** Events that an active webhook has not looked at. */
  unread: number;
  pending: number;
  oldest_secs: number;
}

export async function readWebhookState(sql: Sql): Promise<WebhookState> {
  const { rows } = await sql.query<WebhookState>(
    `select w.*, d.*
     from (
       select count(*) filter (where w.status = 'active') as active,
         count(*) filter (where w.status = 'active' and w.failing_since is not null) as failing,
         count(*) filter (where w.disabled_reason is not null) as disabled_by_service,
         coalesce(sum(greatest(c.seq - w.position, 0)) filter (where w.status = 'active'), 0)::float8 as unread
       from webhooks w left join event_chains c using (org_id)
       where w.deleted_at is null
     ) w,
     (
       select count(*) as pending,
         coalesce(extract(epoch from clock_timestamp() - min(d.created_at)), 0)::float8 as oldest_secs
       from webhook_deliveries d join webhooks w on w.org_id = d.org_id and w.id = d.webhook_id
       where d.status = 'pending' and w.status = 'active'
     ) d`,
  );
  return rows[0]!;
}

/** The age of the oldest reading of an active volume, and of the oldest sign of life of a run. */
export async function readMeteringLag(sql: Sql): Promise<{ volumes: number; runs: number }> {
  const { rows } = await sql.query<{ volumes: number; runs: number }>(
    `select
       coalesce((
         select extract(epoch from clock_timestamp() - coalesce(sampled_at, created_at)) from volumes
         where status = 'active' and removed_at is null
         order by coalesce(sampled_at, created_at) limit 1
       ), 0)::float8 as volumes,
       coalesce((
         select extract(epoch from clock_timestamp() - min(seen_at)) from runs
         where end_reason is null and worker_id is not null and started_at is not null
       ), 0)::float8 as runs`,
  );
  return rows[0]!;
}

export interface LeaseState extends Record<string, unknown> {
  id: string;
  remaining_secs: number;
  holder: string;
}

/** Negative: the lease has expired. */
export async function readLeases(sql: Sql): Promise<LeaseState[]> {
  const { rows } = await sql.query<LeaseState>(
    'select id, holder, extract(epoch from expires_at - clock_timestamp())::float8 as remaining_secs from workers',
  );
  return rows;
}

export interface DatabaseState extends Record<string, unknown> {
  bytes: number;
  connections: number;
  max_connections: number;
  committed: number;
  rolled_back: number;
  deadlocks: number;
  blocks_hit: number;
  blocks_read: number;
  temp_bytes: number;
  longest_secs: number;
}

export async function readDatabaseState(sql: Sql): Promise<DatabaseState> {
  const { rows } = await sql.query<DatabaseState>(
    `select pg_database_size(current_database())::float8 as bytes, numbackends as connections,
       current_setting('max_connections')::int as max_connections,
       xact_commit::float8 as committed, xact_rollback::float8 as rolled_back, deadlocks::float8 as deadlocks,
       blks_hit::float8 as blocks_hit, blks_read::float8 as blocks_read, temp_bytes::float8 as temp_bytes,
       coalesce((
         select extract(epoch from clock_timestamp() - min(xact_start)) from pg_stat_activity
         where datname = current_database() and backend_type = 'client backend'
       ), 0)::float8 as longest_secs
     from pg_stat_database where datname = current_database()`,
  );
  return rows[0]!;
}
