import { v7 as uuidv7 } from 'uuid';
import type { WriteTarget } from '../../db/write-batch.js';
import type { Instant } from '../../lib/instant.js';
import { actorId } from './actor.js';
import { CATALOGUE, type EventPayload, type EventType } from './catalogue.js';
import { leafOf } from './content.js';
import { insertEvent, insertEvents, type NewEventRow } from './queries.js';
import type { EventActor } from './schema.js';

export interface NewEvent<Type extends EventType> {
  orgId: string;
  type: Type;
  actor: EventActor;
  /** The sandbox, volume or key it is about; null when it is the organization. */
  resourceId: string | null;
  at: Instant;
  /** Never anything secret: it is shown to everybody who may read events. */
  payload: EventPayload<Type>;
}

/** Writes an audit event. `tx`: the transaction of the change that it records, so that neither is there alone. Returns its id. */
export async function recordEvent<Type extends EventType>(
  tx: WriteTarget,
  event: NewEvent<Type>,
): Promise<string> {
  const row = rowOf(event);
  await insertEvent(tx, row);
  return row.id;
}

/** The same for several, in the order of their times. */
export async function recordEvents<Type extends EventType>(
  tx: WriteTarget,
  events: readonly NewEvent<Type>[],
): Promise<void> {
  await insertEvents(tx, events.map(rowOf));
}

function rowOf<Type extends EventType>(event: NewEvent<Type>): NewEventRow {
  const content = {
    org_id: event.orgId,
    id: uuidv7(),
    occurred_at: event.at,
    category: CATALOGUE[event.type].category,
    event_type: event.type,
    actor: event.actor,
    payload: event.payload,
    // As the database gives it back: a caller may have written it in capitals.
    resource_id: event.resourceId?.toLowerCase() ?? null,
  };
  return {
    ...content,
    actor_kind: event.actor.kind,
    actor_id: actorId(event.actor),
    leaf: leafOf(content),
  };
}
