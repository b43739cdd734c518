import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { EventSql } from '../db/transaction.js';
import type { Instant } from '../lib/instant.js';
import { newId } from '../lib/uuid.js';
import { insertVolume } from './queries.js';

/** In the transaction that creates the organization. */
export async function createHostVolume(
  tx: EventSql,
  orgId: string,
  actor: EventActor,
  at: Instant,
): Promise<void> {
  const id = newId();
  await insertVolume(tx, {
    org_id: orgId,
    id,
    kind: 'host',
    name: null,
    labels: {},
    capacity_gib: null,
    created_at: at,
  });
  await recordEvent(tx, {
    orgId,
    type: 'volume_created',
    actor,
    resourceId: id,
    at,
    payload: { volume_id: id, kind: 'host', name: null, capacity_gib: null },
  });
}
