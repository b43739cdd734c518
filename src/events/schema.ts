import { Type, type Static } from 'typebox';
import { DateTime, Named, Nullable, PageOf, Uuid, Variants } from '../http/schema.js';

export const EventActor = Variants(
  'kind',
  [
    Type.Object({
      kind: Type.Literal('user'),
      user_id: Uuid,
      label: Type.String(),
      redacted_email: Type.String(),
    }),
    Type.Object({ kind: Type.Literal('api_key'), api_key_id: Uuid, name: Type.String() }),
    Type.Object({ kind: Type.Literal('system'), code: Type.String(), label: Type.String() }),
    Type.Object({
      kind: Type.Literal('ssh_key'),
      key_id: Uuid,
      fingerprint: Type.String(),
      label: Type.Optional(Nullable(Type.String())),
    }),
  ],
  { title: 'EventActor', description: 'Who acted: a snapshot made when the event was written.' },
);
export type EventActor = Static<typeof EventActor>;

export const EventResponse = Named('EventResponse', {
  id: Uuid,
  org_id: Uuid,
  timestamp: DateTime,
  category: Type.String(),
  event_type: Type.String(),
  actor: EventActor,
  payload: Type.Unknown({ description: 'By event type.' }),
});
export type EventResponse = Static<typeof EventResponse>;

export const PaginatedEventResponse = PageOf('PaginatedEventResponse', EventResponse);
