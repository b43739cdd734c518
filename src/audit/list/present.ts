import { shortInstant } from '../../lib/instant.js';
import type { EventRow } from '../events/queries.js';
import type { EventResponse } from '../events/schema.js';

export function presentEvent({ occurred_at, ...row }: EventRow): EventResponse {
  const { id, org_id, category, event_type, actor, payload } = row;
  return { id, org_id, timestamp: shortInstant(occurred_at), category, event_type, actor, payload };
}
