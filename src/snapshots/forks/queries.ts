import type { Reader } from '../../access/reader.js';
import type { Sql } from '../../db/pool.js';
import { COLUMNS, type SnapshotPage, type SnapshotRow } from '../queries.js';
import type { ForkedSandbox } from './schema.js';

/** The row of an operation that makes copies. */
export type ForkRow = SnapshotRow & {
  purpose: 'fork';
  fork_count: number;
  sandbox_id: string;
  sandbox_name: string;
};

export function isFork(row: SnapshotRow): row is ForkRow {
  return row.purpose === 'fork';
}

type Row = ForkRow & Record<string, unknown>;

const SEEN = "org_id = $1 and labels @> $2::jsonb and purpose = 'fork'";

export async function findFork(
  sql: Sql,
  { orgId, labels }: Reader,
  id: string,
): Promise<ForkRow | undefined> {
  const { rows } = await sql.query<Row>(`select ${COLUMNS} from snapshots where ${SEEN} and id = $3`, [
    orgId,
    JSON.stringify(labels),
    id,
  ]);
  return rows[0];
}

/** The newest first. */
export async function listForks(
  sql: Sql,
  { orgId, labels }: Reader,
  { after, limit }: Pick<SnapshotPage, 'after' | 'limit'>,
): Promise<ForkRow[]> {
  const { rows } = await sql.query<Row>(
    `select ${COLUMNS} from snapshots
     where ${SEEN} and ($3::timestamptz is null or (created_at, id) < ($3, $4::uuid))
     order by created_at desc, id desc limit $5`,
    [orgId, JSON.stringify(labels), after?.[0] ?? null, after?.[1] ?? null, limit],
  );
  return rows;
}

const COPIES =
  's.org_id = $1 and s.disk_snapshot_id = $2 and s.removed_at is null and s.destroyed_at is null';

/** Their ids have the order of the request. */
export async function listCopies(
  sql: Sql,
  { orgId, labels }: Reader,
  forkId: string,
): Promise<ForkedSandbox[]> {
  const { rows } = await sql.query<ForkedSandbox & Record<string, unknown>>(
    `select s.id, s.name, s.slug, s.status from sandboxes s
     where ${COPIES} and ($3::jsonb = '{}' or s.spec::jsonb -> 'labels' @> $3::jsonb)
     order by s.id`,
    [orgId, forkId, JSON.stringify(labels)],
  );
  return rows;
}

/** In one order, so that two transactions that lock them do not wait for each other. */
export async function copyIds(sql: Sql, orgId: string, forkId: string): Promise<string[]> {
  const { rows } = await sql.query<{ id: string }>(
    `select s.id from sandboxes s where ${COPIES} order by s.id`,
    [orgId, forkId],
  );
  return rows.map(({ id }) => id);
}

/** The first `count` numbers of `prefix` that no sandbox has as a name, from 1 to `highest`. */
export async function freeNumbers(
  sql: Sql,
  orgId: string,
  { prefix, count, highest }: { prefix: string; count: number; highest: number },
): Promise<number[]> {
  const { rows } = await sql.query<{ number: number }>(
    `select number from generate_series(1, $3::int) number
     where not exists (
       select from sandboxes s where s.org_id = $1 and s.name = $2 || '-' || number and s.removed_at is null)
     order by number limit $4`,
    [orgId, prefix, highest, count],
  );
  return rows.map(({ number }) => number);
}
