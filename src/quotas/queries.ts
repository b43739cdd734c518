import { ADVISORY_LOCKS, lockAdvisory } from '../db/advisory-locks.js';
import type { Sql } from '../db/pool.js';
import { prepared } from '../db/prepared.js';
import type { Instant } from '../lib/instant.js';
import { inUnits } from '../prices/price.js';
import { computeTotals } from '../usage/summary-queries.js';
import { LIMITS, SWITCHES, type Limit, type Limits, type UsedHours } from './limits.js';

const COLUMNS = [...LIMITS, ...SWITCHES].join(', ');

export async function insertQuotas(sql: Sql, orgId: string, at: Instant): Promise<void> {
  await sql.query('insert into quotas (org_id, updated_at) values ($1, $2)', [orgId, at]);
}

/** Adds the missing rows of imported organizations. */
export async function completeQuotas(sql: Sql, at: Instant): Promise<void> {
  await sql.query(
    'insert into quotas (org_id, updated_at) select id, $1 from orgs on conflict (org_id) do nothing',
    [at],
  );
}

export async function getLimits(sql: Sql, orgId: string): Promise<Limits | undefined> {
  const { rows } = await sql.query<Limits>(`select ${COLUMNS} from quotas where org_id = $1`, [orgId]);
  return rows[0];
}

interface Counts {
  existing: number;
  /** Starting and running sandboxes, without imported ones. */
  ephemeral_running: number;
  persistent_running: number;
}

export interface QuotaRow extends Limits, Counts {
  count_rows: number;
  /** Whether budgets of the organization can refuse starts. The read without the details costs a start one lookup. */
  has_budgets: boolean;
  /** The most transactions that the database runs at once. */
  most_at_once: number;
}

/**
 * The first live row of the counts, if `condition` holds. Dead rows of earlier compactions are before it. This index
 * scan marks them dead in the index for later scans. The sum runs as a bitmap scan, which marks nothing and would visit
 * every dead row.
 */
const firstRow = (condition: string) =>
  `(select id from sandbox_counts where org_id = $1 and (${condition}) order by id limit 1)`;

const COUNTED_LIMITS = [
  'max_sandboxes',
  'max_concurrent_ephemeral_running',
  'max_concurrent_persistent_running',
] as const satisfies readonly Limit[];

/**
 * The limits and the committed counts. With `concerned`, counts are added up only if one of these is limited, else they
 * are 0.
 */
export async function getQuotas(
  sql: Sql,
  orgId: string,
  concerned: readonly Limit[] | null = null,
): Promise<QuotaRow | undefined> {
  const limited = COUNTED_LIMITS.map((limit) => `('${limit}' = any ($2) and q.${limit} is not null)`);
  const { rows } = await sql.query<QuotaRow & Record<string, unknown>>(
    prepared(
      `select ${COLUMNS}, counts.*, current_setting('max_connections')::int as most_at_once,
       exists (select from budgets b where b.org_id = $1 and b.action <> 'warn') as has_budgets
     from quotas q
     cross join lateral (
       select count(*)::int as count_rows, coalesce(sum(existing), 0)::int as existing,
         coalesce(sum(ephemeral_running), 0)::int as ephemeral_running,
         coalesce(sum(persistent_running), 0)::int as persistent_running
       from sandbox_counts where org_id = $1 and id >= ${firstRow(`$2::text[] is null or ${limited.join(' or ')}`)}
     ) counts
     where q.org_id = $1`,
      [orgId, concerned],
    ),
  );
  return rows[0];
}

export const COMPACT_BATCH = 1_000;

/**
 * Adds a batch of count rows up to one; returns their number. If another transaction compacts, this one does nothing:
 * concurrent compactions would each scan the rows that the others have locked.
 */
export async function compactCounts(sql: Sql, orgId: string): Promise<number> {
  const { rows } = await sql.query<{ count: number }>(
    prepared(
      `with own as materialized (
       select pg_try_advisory_xact_lock(hashtextextended($3, 0)) as held
     ), compacted as (
       delete from sandbox_counts where (org_id, id) in (
         select org_id, id from sandbox_counts where org_id = $1 and id >= ${firstRow('(select held from own)')}
         order by id limit $2)
       returning existing, ephemeral_running, persistent_running
     ), kept as (
       insert into sandbox_counts (org_id, existing, ephemeral_running, persistent_running)
       select $1, sum(existing), sum(ephemeral_running), sum(persistent_running) from compacted having count(*) > 0
     )
     select count(*)::int as count from compacted`,
      [orgId, COMPACT_BATCH, ADVISORY_LOCKS.counts(orgId)],
    ),
  );
  return rows[0]!.count;
}

/** The organizations with more than `most` count rows. */
export async function orgsToCompact(sql: Sql, most: number): Promise<string[]> {
  const { rows } = await sql.query<{ org_id: string }>(
    'select org_id from sandbox_counts group by org_id having count(*) > $1',
    [most],
  );
  return rows.map(({ org_id }) => org_id);
}

/** Takes an advisory lock until the transaction ends. Under an exclusive lock the counts include every reservation. */
export async function lockQuotas(tx: Sql, orgId: string, mode: 'exclusive' | 'shared'): Promise<void> {
  await lockAdvisory(tx, ADVISORY_LOCKS.quotas(orgId), mode);
}

/** The caller must hold the exclusive lock. */
export async function updateLimits(
  sql: Sql,
  orgId: string,
  change: Partial<Limits>,
  at: Instant,
): Promise<void> {
  const columns = Object.keys(change).map((column, index) => `${column} = $${index + 3}`);
  await sql.query(`update quotas set ${[...columns, 'updated_at = $2'].join(', ')} where org_id = $1`, [
    orgId,
    at,
    ...Object.values(change),
  ]);
}

/** In GiB. A deleted volume counts until it is purged, because it can be restored. */
export async function sumOfCaps(sql: Sql, orgId: string): Promise<number> {
  const { rows } = await sql.query<{ sum: number }>(
    `select coalesce(sum(capacity_gib), 0)::bigint as sum from volumes where org_id = $1 and removed_at is null`,
    [orgId],
  );
  return rows[0]!.sum;
}

export async function countPublishedPorts(sql: Sql, orgId: string): Promise<number> {
  const { rows } = await sql.query<{ count: number }>(
    'select count(*)::int as count from published_ports where org_id = $1',
    [orgId],
  );
  return rows[0]!.count;
}

/**
 * A deleted snapshot counts until its data is erased: it can be restored, or sandboxes need it. A snapshot that is
 * being made counts without bytes.
 */
export async function sumSnapshots(sql: Sql, orgId: string): Promise<{ count: number; bytes: number }> {
  const { rows } = await sql.query<{ count: number; bytes: number }>(
    `select count(*)::int as count, coalesce(sum(size_bytes - shared_bytes), 0)::bigint as bytes from snapshots
     where org_id = $1 and erased_at is null and status <> 'failed'`,
    [orgId],
  );
  return rows[0]!;
}

/** The usage in `[since, now)`, exact in integers and divided once. */
export async function usedHours(sql: Sql, orgId: string, since: Instant, now: Instant): Promise<UsedHours> {
  const { vcpu_hour, memory_gib_hour, disk_gib_hour } = await computeTotals(sql, orgId, {
    since,
    until: now,
    now,
  });
  return {
    vcpu_hours_used: inUnits('vcpu_hour', vcpu_hour),
    memory_gib_hours_used: inUnits('memory_gib_hour', memory_gib_hour),
    disk_gib_hours_used: inUnits('disk_gib_hour', disk_gib_hour),
  };
}

/** The organizations with limited hours that have a starting or running sandbox. */
export async function orgsAtRisk(sql: Sql): Promise<string[]> {
  const { rows } = await sql.query<{ org_id: string }>(
    `select q.org_id from quotas q
     where q.hard_cap and num_nonnulls(q.included_vcpu_hours, q.included_memory_gib_hours, q.included_disk_gib_hours) > 0
       and exists (
         select from sandboxes s
         where s.org_id = q.org_id and s.removed_at is null and s.runtime is not null
           and s.status in ('starting', 'running'))`,
  );
  return rows.map(({ org_id }) => org_id);
}

/** Starting and running sandboxes, by id, after `after`. */
export async function listRunning(
  sql: Sql,
  orgId: string,
  after: string | null,
  limit: number,
): Promise<string[]> {
  const { rows } = await sql.query<{ id: string }>(
    `select id from sandboxes
     where org_id = $1 and removed_at is null and runtime is not null and status in ('starting', 'running')
       and ($2::uuid is null or id > $2)
     order by id
     limit $3`,
    [orgId, after, limit],
  );
  return rows.map(({ id }) => id);
}
