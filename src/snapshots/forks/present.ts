import { shortInstant } from '../../lib/instant.js';
import { OPERATION_STATUS } from '../state.js';
import type { ForkRow } from './queries.js';
import type { ForkedSandbox, ForkOperation, ForkSummary } from './schema.js';

export function presentFork(row: ForkRow): ForkSummary {
  return {
    id: row.id,
    status: OPERATION_STATUS[row.status],
    sandbox_id: row.sandbox_id,
    sandbox_name: row.sandbox_name,
    count: row.fork_count,
    size_bytes: row.size_bytes,
    error: row.error_code === null ? null : { code: row.error_code, message: row.error_message ?? '' },
    created_at: shortInstant(row.created_at),
    updated_at: shortInstant(row.updated_at),
    completed_at: row.completed_at && shortInstant(row.completed_at),
  };
}

export function presentWithCopies(row: ForkRow, sandboxes: ForkedSandbox[]): ForkOperation {
  return { ...presentFork(row), sandboxes };
}
