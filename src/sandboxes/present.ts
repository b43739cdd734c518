import { shortInstant, type Instant } from '../lib/instant.js';
import type { SandboxRow } from './queries.js';
import type { SandboxResponse } from './spec/schema.js';

/** The public view: an explicit list of fields, so that a column added later stays inside. */
export function presentSandbox(row: SandboxRow): SandboxResponse {
  return {
    id: row.id,
    org_id: row.org_id,
    name: row.name,
    slug: row.slug,
    status: row.status,
    ephemeral: row.ephemeral,
    created_at: shortInstant(row.created_at),
    last_failure_message: row.last_failure_message,
    spec: row.spec,
    started_at: short(row.started_at),
    stopped_at: short(row.stopped_at),
    status_reason: row.status_reason ?? null,
    runtime: row.runtime,
  };
}

function short(instant: Instant | null): Instant | null {
  return instant === null ? null : shortInstant(instant);
}
