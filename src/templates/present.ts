import { shortInstant } from '../lib/instant.js';
import type { SizedTemplate, TemplateRow } from './queries.js';
import type { TemplateResponse } from './schema.js';

export function presentTemplate(
  row: SizedTemplate | (TemplateRow & { size_bytes?: never; digest?: never }),
): TemplateResponse {
  const isDone = row.status === 'succeeded';
  return {
    id: row.id,
    name: row.name,
    tag: row.tag,
    status: row.status,
    steps: row.steps,
    steps_done: row.steps_done,
    steps_cached: row.steps_cached,
    error:
      row.error_code === null
        ? null
        : { code: row.error_code, message: row.error_message ?? '', line: row.error_line },
    config: isDone ? row.config : null,
    size_bytes: isDone ? (row.size_bytes ?? null) : null,
    snapshot_id: isDone ? row.snapshot_id : null,
    digest: isDone ? (row.digest ?? null) : null,
    dockerfile: row.dockerfile,
    target: row.target,
    context_digest: row.context_digest,
    sandbox_id: row.sandbox_id,
    labels: row.labels,
    created_by: row.actor,
    created_at: shortInstant(row.created_at),
    started_at: row.started_at && shortInstant(row.started_at),
    completed_at: row.completed_at && shortInstant(row.completed_at),
  };
}
