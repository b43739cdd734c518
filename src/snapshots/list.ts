import type { Caller } from '../access/caller.js';
import { readerOf } from '../access/reader.js';
import type { Context } from '../context.js';
import { ApiError } from '../http/errors.js';
import { readCursor, readLabels } from '../http/parameters.js';
import type { PageQuery } from '../http/schema.js';
import { shortInstant } from '../lib/instant.js';
import { PAGE_LIMIT, toPage, type Page } from '../lib/page.js';
import { presentOperation, presentSnapshot } from './present.js';
import {
  findSnapshot,
  isComplete,
  listCandidates,
  listSnapshots,
  type CandidateRow,
  type CompleteSnapshot,
  type SnapshotKey,
} from './queries.js';
import type { SnapshotOperation, SnapshotResponse } from './schema.js';
import { SNAPSHOT_STATUSES } from './state.js';
import { refuseWithoutSnapshots } from './supported.js';

export interface ListSnapshotsQuery extends PageQuery {
  labels?: string;
  include?: 'deleted';
}

export async function listReady(
  { pool, cursors }: Context,
  caller: Caller,
  { cursor, limit = PAGE_LIMIT.default, labels: text, include }: ListSnapshotsQuery,
): Promise<Page<SnapshotResponse>> {
  const { orgId } = caller;
  const labels = readLabels('labels', text);
  const sorted = Object.entries(labels).toSorted(([a], [b]) => (a < b ? -1 : 1));
  const binding = ['snapshots', sorted, include ?? null];
  const after = readCursor(cursors, orgId, binding, cursor) as [string, string] | undefined;
  const statuses = include === 'deleted' ? (['ready', 'deleting'] as const) : (['ready'] as const);
  const rows = await listSnapshots(pool, readerOf(caller), { statuses, labels, after, limit: limit + 1 });
  return toPage(rows as CompleteSnapshot[], limit, presentSnapshot, ({ created_at, id }) =>
    cursors.encode(orgId, binding, [created_at, id]),
  );
}

export async function listOperations(
  { pool, cursors }: Context,
  caller: Caller,
  { cursor, limit = PAGE_LIMIT.default }: PageQuery,
): Promise<Page<SnapshotOperation>> {
  const { orgId } = caller;
  const binding = ['snapshot-operations'];
  const after = readCursor(cursors, orgId, binding, cursor) as [string, string] | undefined;
  const page = { statuses: SNAPSHOT_STATUSES, labels: {}, after, limit: limit + 1 };
  const rows = await listSnapshots(pool, readerOf(caller), page);
  return toPage(rows, limit, presentOperation, ({ created_at, id }) =>
    cursors.encode(orgId, binding, [created_at, id]),
  );
}

type Candidate = Omit<CandidateRow, 'created_at'> & { created_at: string };

export async function listSources(
  { pool, cursors, runtime }: Context,
  caller: Caller,
  { cursor, limit = PAGE_LIMIT.default }: PageQuery,
): Promise<Page<Candidate>> {
  refuseWithoutSnapshots(runtime);
  const { orgId } = caller;
  const binding = ['snapshot-candidates'];
  const after = readCursor(cursors, orgId, binding, cursor) as [string, string] | undefined;
  const rows = await listCandidates(pool, readerOf(caller), runtime.name, { after, limit: limit + 1 });
  const present = (row: CandidateRow) => ({ ...row, created_at: shortInstant(row.created_at) });
  return toPage(rows, limit, present, ({ created_at, id }) =>
    cursors.encode(orgId, binding, [created_at, id]),
  );
}

/** Throws `snapshot_not_found`. A deleted one is found by its id until it is purged. */
export async function showSnapshot(
  { pool }: Context,
  caller: Caller,
  key: SnapshotKey,
): Promise<SnapshotResponse> {
  const row = await findSnapshot(pool, readerOf(caller), key);
  if (!row || !isComplete(row)) throw new ApiError('snapshot_not_found');
  return presentSnapshot(row);
}

export async function showOperation(
  { pool }: Context,
  caller: Caller,
  id: string,
): Promise<SnapshotOperation> {
  const row = await findSnapshot(pool, readerOf(caller), { id });
  if (!row) throw new ApiError('snapshot_operation_not_found');
  return presentOperation(row);
}
