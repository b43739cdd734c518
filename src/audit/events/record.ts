import type { EventTarget } from '../../db/write-batch.js';
import type { Instant } from '../../lib/instant.js';
import { newId } from '../../lib/uuid.js';
import { actorId } from './actor.js';
import { CATALOGUE, type EventPayload, type EventType } from './catalogue.js';
import { leafOf } from './hash-chain.js';
import { insertEvent, insertEvents, type NewEventRow } from './queries.js';
import type { EventActor } from './schema.js';
import { insertTraces } from './trace-queries.js';

export interface NewEvent<Type extends EventType> {
  orgId: string;
  type: Type;
  actor: EventActor;
  /** The sandbox, volume or key of the event; null for the organization. */
  resourceId: string | null;
  at: Instant;
  /** Shown to every reader of events: it must not have secrets. */
  payload: EventPayload<Type>;
}

/** Writes an audit event in the transaction of the change that it records. Returns its id. */
export async function recordEvent<Type extends EventType>(
  target: EventTarget,
  event: NewEvent<Type>,
): Promise<string> {
  const row = rowOf(event);
  await insertEvent(target, row);
  await insertTraces(target, [row]);
  return row.id;
}

export async function recordEvents<Type extends EventType>(
  target: EventTarget,
  events: readonly NewEvent<Type>[],
): Promise<void> {
  const rows = events.map(rowOf);
  await insertEvents(target, rows);
  await insertTraces(target, rows);
}

function rowOf<Type extends EventType>(event: NewEvent<Type>): NewEventRow {
  const content = {
    org_id: event.orgId,
    id: newId(),
    occurred_at: event.at,
    category: CATALOGUE[event.type].category,
    event_type: event.type,
    actor: event.actor,
    payload: event.payload,
    // PostgreSQL returns lower case, which the leaf must have too.
    resource_id: event.resourceId?.toLowerCase() ?? null,
  };
  return {
    ...content,
    actor_kind: event.actor.kind,
    actor_id: actorId(event.actor),
    leaf: leafOf(content),
  };
}
