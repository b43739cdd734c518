import type { Sql } from '../../db/pool.js';
import { prepared } from '../../db/prepared.js';
import type { LatePart } from '../../engine/runtime.js';
import { stringifyExact } from '../../lib/exact-json.js';
import type { Instant } from '../../lib/instant.js';
import type { RunSpec } from '../../spec/run-spec.js';
import type { SandboxSpec } from '../../spec/specification.js';
import type { SandboxStatus } from '../../spec/statuses.js';
import { parseSpec } from '../../spec/text.js';
import { LOCKED_COLUMNS, withSpecs, type LockedSandbox, type UnparsedRow } from '../queries.js';
import type { PutPoolRequest } from './schema.js';

export type PoolTemplate = Omit<PutPoolRequest, 'size' | 'most'>;

export interface PoolRow {
  org_id: string;
  id: string;
  name: string;
  request: PoolTemplate;
  run_spec: RunSpec;
  spec: SandboxSpec;
  runtime: string;
  size: number;
  most: number | null;
  image_digest: string | null;
  /** When members were last replaced because the digest of a started one was another. Null: never. */
  image_moved_at: Instant | null;
  tag_checked_at: Instant;
  created_at: Instant;
  updated_at: Instant;
  next_refill_at: Instant;
  failures: number;
  last_failure_message: string | null;
}

interface PoolCounts {
  ready: number;
  starting: number;
  given: number;
}

const COLUMNS = `p.org_id, p.id, p.name, p.request::text, p.run_spec::text, p.spec::text, p.runtime, p.size, p.most,
  p.image_digest, p.image_moved_at, p.tag_checked_at, p.created_at, p.updated_at, p.next_refill_at, p.failures, p.last_failure_message`;

/** A member with another image than the pool is replaced, so no create takes it. Some engines tell no digest. */
const IS_CURRENT = '(p.image_digest is null or s.image_digest is null or s.image_digest = p.image_digest)';

/**
 * A member close to its end may end before the create has it. The margin is a minute, and less of a short run: all of
 * it would be within a minute of its end.
 */
const ENDS_SOON = `exists (select from runs r where r.org_id = s.org_id and r.id = s.run_id
  and r.started_at + make_interval(secs => r.max_duration_secs - least(60, r.max_duration_secs / 10.0)) <= $3)`;

const COUNTS = `(select count(*)::int from sandboxes s where s.org_id = p.org_id and s.pool_id = p.id and s.removed_at is null
    and s.warm and s.status = 'running' and ${IS_CURRENT}) as ready,
  (select count(*)::int from sandboxes s where s.org_id = p.org_id and s.pool_id = p.id and s.removed_at is null
    and s.warm and s.status = 'starting') as starting,
  (select count(*)::int from sandboxes s where s.org_id = p.org_id and s.pool_id = p.id and s.removed_at is null
    and not s.warm and s.status in ('starting', 'running', 'stopping')) as given`;

type UnparsedPool<Row> = Record<string, unknown> &
  Omit<Row, 'request' | 'run_spec' | 'spec'> & { request: string; run_spec: string; spec: string };

function parsed<Row extends PoolRow>({ request, run_spec, spec, ...rest }: UnparsedPool<Row>): Row {
  const texts = {
    request: JSON.parse(request) as PoolTemplate,
    run_spec: parseSpec(run_spec),
    spec: parseSpec(spec),
  };
  return { ...rest, ...texts } as unknown as Row;
}

export type CountedPool = PoolRow & PoolCounts;

export async function getPool(sql: Sql, orgId: string, name: string): Promise<CountedPool | undefined> {
  const { rows } = await sql.query<UnparsedPool<CountedPool>>(
    `select ${COLUMNS}, ${COUNTS} from pools p where p.org_id = $1 and p.name = $2 and p.removed_at is null`,
    [orgId, name],
  );
  return rows[0] && parsed<CountedPool>(rows[0]);
}

/** In the order of their names. */
export async function getPools(
  sql: Sql,
  orgId: string,
  after: string | undefined,
  limit: number,
): Promise<CountedPool[]> {
  const { rows } = await sql.query<UnparsedPool<CountedPool>>(
    `select ${COLUMNS}, ${COUNTS} from pools p
     where p.org_id = $1 and p.removed_at is null and ($2::text is null or p.name > $2)
     order by p.name limit $3`,
    [orgId, after ?? null, limit],
  );
  return rows.map((row) => parsed<CountedPool>(row));
}

/** Alone: the specification of the pool may be what cannot be read. */
export async function getFailures(sql: Sql, orgId: string, id: string): Promise<number> {
  const { rows } = await sql.query<{ failures: number }>(
    'select failures from pools where org_id = $1 and id = $2',
    [orgId, id],
  );
  return rows[0]?.failures ?? 0;
}

export async function countPools(sql: Sql, orgId: string): Promise<number> {
  const { rows } = await sql.query<{ count: number }>(
    'select count(*)::int as count from pools where org_id = $1 and removed_at is null',
    [orgId],
  );
  return rows[0]!.count;
}

/** Locks the pool, which serializes its changes and refills. */
export async function lockPool(
  tx: Sql,
  orgId: string,
  by: { name: string } | { id: string },
): Promise<PoolRow | undefined> {
  const [column, value, skip] = 'name' in by ? ['name', by.name, ''] : ['id', by.id, 'skip locked'];
  const { rows } = await tx.query<UnparsedPool<PoolRow>>(
    `select ${COLUMNS} from pools p
     where p.org_id = $1 and p.${column} = $2 and p.removed_at is null
     for no key update ${skip}`,
    [orgId, value],
  );
  return rows[0] && parsed<PoolRow>(rows[0]);
}

export async function insertPool(
  sql: Sql,
  pool: Omit<
    PoolRow,
    | 'image_digest'
    | 'image_moved_at'
    | 'tag_checked_at'
    | 'next_refill_at'
    | 'failures'
    | 'last_failure_message'
  >,
): Promise<void> {
  await sql.query(
    `insert into pools (org_id, id, name, request, run_spec, spec, runtime, size, most, tag_checked_at, created_at,
       updated_at, refilled_at, next_refill_at)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $10, $10, $10)`,
    [
      pool.org_id,
      pool.id,
      pool.name,
      JSON.stringify(pool.request),
      stringifyExact(pool.run_spec),
      stringifyExact(pool.spec),
      pool.runtime,
      pool.size,
      pool.most,
      pool.created_at,
    ],
  );
}

interface PoolChange {
  request?: PoolTemplate;
  run_spec?: RunSpec;
  spec?: SandboxSpec;
  runtime?: string;
  size?: number;
  most?: number | null;
  image_digest?: string | null;
  image_moved_at?: Instant | null;
  tag_checked_at?: Instant;
  updated_at?: Instant;
  refilled_at?: Instant;
  next_refill_at?: Instant;
  failures?: number;
  last_failure_message?: string | null;
  removed_at?: Instant;
}

export async function updatePool(
  sql: Sql,
  { org_id, id }: Pick<PoolRow, 'org_id' | 'id'>,
  { request, run_spec, spec, ...rest }: PoolChange,
): Promise<void> {
  const change: Record<string, unknown> = {
    ...rest,
    ...(request && { request: JSON.stringify(request) }),
    ...(run_spec && { run_spec: stringifyExact(run_spec) }),
    ...(spec && { spec: stringifyExact(spec) }),
  };
  const columns = Object.keys(change).map((column, index) => `${column} = $${index + 3}`);
  if (columns.length === 0) return;
  await sql.query(`update pools set ${columns.join(', ')} where org_id = $1 and id = $2`, [
    org_id,
    id,
    ...Object.values(change),
  ]);
}

/** A sandbox of a pool that no create has taken. */
export interface Member {
  id: string;
  name: string;
  status: SandboxStatus;
  started_at: Instant | null;
  image_digest: string | null;
  last_failure_message: string | null;
}

/** The oldest first. */
export async function getMembers(sql: Sql, orgId: string, poolId: string): Promise<Member[]> {
  const { rows } = await sql.query<Member & Record<string, unknown>>(
    `select s.id, s.name, s.status, s.started_at, s.image_digest, s.last_failure_message from sandboxes s
     where s.org_id = $1 and s.pool_id = $2 and s.removed_at is null and s.warm
     order by s.created_at, s.id`,
    [orgId, poolId],
  );
  return rows;
}

/** Undefined: a create has taken it, or it is deleted. */
export async function lockMember(tx: Sql, orgId: string, id: string): Promise<LockedSandbox | undefined> {
  const { rows } = await tx.query<UnparsedRow<LockedSandbox>>(
    `select ${LOCKED_COLUMNS} from sandboxes s
     where s.org_id = $1 and s.id = $2 and s.removed_at is null and s.warm
     for update`,
    [orgId, id],
  );
  return rows[0] && withSpecs<LockedSandbox>(rows[0]);
}

/** The pools of the organization with this image, and what a create of the engine would get from them. */
export async function poolsWithImage(
  sql: Sql,
  orgId: string,
  image: string,
  runtime: string,
): Promise<{ id: string; name: string; run_spec: RunSpec }[]> {
  const { rows } = await sql.query<{ id: string; name: string; run_spec: string }>(
    prepared(
      `select p.id, p.name, p.run_spec::text from pools p
       where p.org_id = $1 and p.run_spec ->> 'image' = $2 and p.runtime = $3 and p.size > 0 and p.removed_at is null
       order by p.name`,
      [orgId, image, runtime],
    ),
  );
  return rows.map((row) => ({ ...row, run_spec: parseSpec(row.run_spec) as RunSpec }));
}

export type ReadySandbox = LockedSandbox & { run_id: string; started_at: Instant };

/** A ready sandbox, whose worker has a live process, which has seen it running. */
const IS_READY = `s.org_id = $1 and s.pool_id = $2 and s.removed_at is null and s.warm and s.status = 'running'
         and s.started_at is not null and s.run_id is not null
         and exists (select from pools p where p.org_id = s.org_id and p.id = s.pool_id and p.removed_at is null and ${IS_CURRENT})
         and not ${ENDS_SOON}
         and is_worker_live(s.worker_id, $3)`;

/**
 * Locks a ready sandbox of the pool that takes these parts, the one that has run the longest. Concurrent creates skip
 * the locked ones, so none is taken twice.
 */
export async function lockReady(
  tx: Sql,
  orgId: string,
  poolId: string,
  parts: readonly LatePart[],
  at: Instant,
): Promise<ReadySandbox | undefined> {
  const { rows } = await tx.query<UnparsedRow<LockedSandbox>>(
    prepared(
      `select ${LOCKED_COLUMNS} from sandboxes s
       where ${IS_READY} and coalesce(s.takes, '{}') @> $4::text[]
       order by s.started_at limit 1
       for update of s skip locked`,
      [orgId, poolId, at, parts],
    ),
  );
  return rows[0] && (withSpecs<LockedSandbox>(rows[0]) as ReadySandbox);
}

/** The parts that a ready sandbox of the pool takes, the one that takes the most. Undefined: none is ready. */
export async function readyParts(
  tx: Sql,
  orgId: string,
  poolId: string,
  at: Instant,
): Promise<string[] | undefined> {
  const { rows } = await tx.query<{ takes: string[] }>(
    `select coalesce(s.takes, '{}') as takes from sandboxes s
     where ${IS_READY}
     order by cardinality(coalesce(s.takes, '{}')) desc limit 1`,
    [orgId, poolId, at],
  );
  return rows[0]?.takes;
}
