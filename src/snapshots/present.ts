import { shortInstant } from '../lib/instant.js';
import { manifestOf } from './manifest.js';
import { isComplete, type CompleteSnapshot, type SnapshotRow } from './queries.js';
import type { SnapshotOperation, SnapshotResponse } from './schema.js';
import { OPERATION_STATUS } from './state.js';

export function presentSnapshot(row: CompleteSnapshot): SnapshotResponse {
  return {
    kind: 'disk',
    id: row.id,
    name: row.name,
    status: row.status,
    location: { type: 'managed', id: row.id },
    sandbox_id: row.sandbox_id,
    digest: row.digest,
    size_bytes: row.size_bytes,
    manifest: manifestOf(row),
    labels: row.labels,
    created_by: row.actor,
    created_at: shortInstant(row.created_at),
    purge_at: row.purge_at && shortInstant(row.purge_at),
  };
}

export function presentOperation(row: SnapshotRow): SnapshotOperation {
  return {
    id: row.id,
    kind: 'disk',
    status: OPERATION_STATUS[row.status],
    name: row.name,
    sandbox_id: row.sandbox_id,
    sandbox_name: row.sandbox_name,
    result: isComplete(row) ? presentSnapshot(row) : null,
    error: row.error_code === null ? null : { code: row.error_code, message: row.error_message ?? '' },
    created_at: shortInstant(row.created_at),
    updated_at: shortInstant(row.updated_at),
    completed_at: row.completed_at && shortInstant(row.completed_at),
  };
}
