import type { Sql } from '../db/pool.js';
import { prepared } from '../db/prepared.js';
import type { Instant } from '../lib/instant.js';
import { inUnits } from '../prices/price.js';
import { computeTotals } from '../usage/summary-queries.js';
import { LIMITS, SWITCHES, type Limit, type Limits, type PoolUsage } from './limits.js';

const COLUMNS = [...LIMITS, ...SWITCHES].join(', ');

/** The quotas of a new organization: none. */
export async function insertQuotas(sql: Sql, orgId: string, at: Instant): Promise<void> {
  await sql.query('insert into quotas (org_id, updated_at) values ($1, $2)', [orgId, at]);
}

/** For organizations that come by import. */
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

/** How many there are. */
interface Counts {
  /** All that exist, whatever their status. */
  existing: number;
  /** The starting and running ones. Imported ones do not run here. */
  ephemeral_running: number;
  persistent_running: number;
}

export interface QuotaRow extends Limits, Counts {
  /** How many rows the counts are made of. */
  parts: number;
  /** How many transactions the database can have at once. */
  most_at_once: number;
}

/**
 * Where the rows begin that the counts of an organization are made of. Before them are those that were folded and are not cleared away
 * yet: a look for the first goes by the index itself, which marks them as gone for those who come next. A sum goes by a bitmap of
 * the index, which marks nothing, and would look each of them up. There is none, and nothing to add up, unless `condition` holds.
 */
const oldest = (condition: string) =>
  `(select id from sandbox_counts where org_id = $1 and (${condition}) order by id limit 1)`;

const ON_COUNTS = [
  'max_sandboxes',
  'max_concurrent_ephemeral_running',
  'max_concurrent_persistent_running',
] as const satisfies readonly Limit[];

/**
 * The limits of an organization with what it has: all that was committed when the statement began. With `concerned` only where one
 * of these is limited: else nothing is added up, and the counts are 0.
 */
export async function getQuotas(
  sql: Sql,
  orgId: string,
  concerned: readonly Limit[] | null = null,
): Promise<QuotaRow | undefined> {
  const limited = ON_COUNTS.map((limit) => `('${limit}' = any ($2) and q.${limit} is not null)`);
  const { rows } = await sql.query<QuotaRow & Record<string, unknown>>(
    prepared(
      `select ${COLUMNS}, counts.*, current_setting('max_connections')::int as most_at_once
     from quotas q
     cross join lateral (
       select count(*)::int as parts, coalesce(sum(existing), 0)::int as existing,
         coalesce(sum(ephemeral_running), 0)::int as ephemeral_running,
         coalesce(sum(persistent_running), 0)::int as persistent_running
       from sandbox_counts where org_id = $1 and id >= ${oldest(`$2::text[] is null or ${limited.join(' or ')}`)}
     ) counts
     where q.org_id = $1`,
      [orgId, concerned],
    ),
  );
  return rows[0];
}

/** Rows folded at once. */
export const COMPACT_BATCH = 1_000;

/**
 * Makes one row of those that the counts of an organization are made of, so many at most; returns of how many. Waits for nobody:
 * whoever comes while another folds, until his transaction ends, leaves it to him. Of many that fold the same rows each would walk
 * past those that the others hold, in every create, until nothing else is done.
 */
export async function compactCounts(sql: Sql, orgId: string): Promise<number> {
  const { rows } = await sql.query<{ count: number }>(
    prepared(
      `with alone as materialized (
       select pg_try_advisory_xact_lock(hashtextextended('fold ' || $1::uuid, 0)) as held
     ), folded as (
       delete from sandbox_counts where (org_id, id) in (
         select org_id, id from sandbox_counts where org_id = $1 and id >= ${oldest('(select held from alone)')}
         order by id limit $2)
       returning existing, ephemeral_running, persistent_running
     ), kept as (
       insert into sandbox_counts (org_id, existing, ephemeral_running, persistent_running)
       select $1, sum(existing), sum(ephemeral_running), sum(persistent_running) from folded having count(*) > 0
     )
     select count(*)::int as count from folded`,
      [orgId, COMPACT_BATCH],
    ),
  );
  return rows[0]!.count;
}

/** The organizations whose counts are made of more than `most` rows. */
export async function orgsToCompact(sql: Sql, most: number): Promise<string[]> {
  const { rows } = await sql.query<{ org_id: string }>(
    'select org_id from sandbox_counts group by org_id having count(*) > $1',
    [most],
  );
  return rows.map(({ org_id }) => org_id);
}

/**
 * Holds the quotas of an organization until the transaction ends. Who holds them alone waits for all others that hold them, and
 * what he counts then is all that there is.
 */
export async function lockQuotas(tx: Sql, orgId: string, how: 'alone' | 'together'): Promise<void> {
  const lock = how === 'alone' ? 'pg_advisory_xact_lock' : 'pg_advisory_xact_lock_shared';
  await tx.query(prepared(`select ${lock}(hashtextextended($1, 0))`, [`quotas ${orgId}`]));
}

/** Changes what is named, for who holds the quotas alone. */
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

/** All caps together, in GiB. A volume that is being deleted counts until it is purged: it can come back. */
export async function sumOfCaps(sql: Sql, orgId: string): Promise<number> {
  const { rows } = await sql.query<{ sum: number }>(
    `select coalesce(sum(capacity_gib), 0)::bigint as sum from volumes where org_id = $1 and removed_at is null`,
    [orgId],
  );
  return rows[0]!.sum;
}

/** What ran in `[since, now)`: days that are over as they are stored. Exact in integers, divided once. */
export async function poolUsage(sql: Sql, orgId: string, since: Instant, now: Instant): Promise<PoolUsage> {
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

/** The organizations whose hours are a wall and that have something starting or running. */
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

/** The starting and running sandboxes, by id, after `after`. */
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
