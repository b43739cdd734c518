import { v7 as uuidv7 } from 'uuid';
import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import { actorId } from './actor.js';
import { leafOf } from './canonical.js';
import { EVENT_CATEGORIES, type EventType } from './catalogue.js';
import { insertEvent } from './queries.js';
import type { EventActor } from './schema.js';

export interface NewEvent {
  orgId: string;
  type: EventType;
  actor: EventActor;
  /** The sandbox, volume or key it is about; null when it is the organization. */
  resourceId: string | null;
  at: Instant;
  /** Never anything secret: it is shown to everybody who may read events. */
  payload: Record<string, unknown>;
}

/** Writes an audit event. `tx`: the transaction of the change that it records, so that neither is there alone. */
export async function recordEvent(tx: Sql, event: NewEvent): Promise<void> {
  const content = {
    org_id: event.orgId,
    id: uuidv7(),
    occurred_at: event.at,
    category: EVENT_CATEGORIES[event.type],
    event_type: event.type,
    actor: event.actor,
    payload: event.payload,
    resource_id: event.resourceId,
  };
  await insertEvent(tx, {
    ...content,
    actor_kind: event.actor.kind,
    actor_id: actorId(event.actor),
    leaf: leafOf(content),
  });
}
