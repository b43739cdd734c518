import { shortInstant, type Instant } from '../lib/instant.js';
import type { DeliveryRow } from './delivery-queries.js';
import type { WebhookRow } from './queries.js';
import type { DeliveryResponse, WebhookResponse } from './schema.js';

/** `at`: the current time, at which replaced secrets may have expired. */
export function presentWebhook(row: WebhookRow, at: Instant): WebhookResponse {
  const { id, org_id, url, description, event_types, format, status, disabled_reason, created_by } = row;
  return {
    id,
    org_id,
    url,
    description,
    event_types,
    format,
    status,
    disabled_reason,
    created_by,
    failing_since: orNull(row.failing_since),
    previous_secret_until: row.old_until !== null && row.old_until > at ? shortInstant(row.old_until) : null,
    created_at: shortInstant(row.created_at),
    updated_at: shortInstant(row.updated_at),
  };
}

export function presentDelivery(row: DeliveryRow): DeliveryResponse {
  const { id, webhook_id, event_id, event_type, seq, status, attempts, results } = row;
  return {
    id,
    webhook_id,
    event_id,
    event_type,
    seq,
    status,
    attempts,
    results,
    next_attempt_at: orNull(row.due_at),
    created_at: shortInstant(row.created_at),
    settled_at: orNull(row.settled_at),
  };
}

function orNull(instant: Instant | null): string | null {
  return instant === null ? null : shortInstant(instant);
}

/** Audit events contain only the origin of a URL: paths and queries of webhooks contain secrets. */
export function originOf(url: string): string {
  return new URL(url).origin;
}
