import { Type, type Static } from 'typebox';
import { DateTime, Field, Named, Nullable, PageOf, Uuid, Variants } from '../../http/schema.js';

export const EventActor = Variants(
  'kind',
  [
    Type.Object({
      kind: Type.Literal('user', { description: 'A person.' }),
      user_id: Field(Uuid, 'The id of the person.'),
      label: Type.String({ description: 'The name shown for the person.' }),
      redacted_email: Type.String({
        description: 'The email address, shortened so that it identifies nobody.',
      }),
    }),
    Type.Object({
      kind: Type.Literal('api_key', { description: 'An API key.' }),
      api_key_id: Field(Uuid, 'The id of the key.'),
      name: Type.String({ description: 'The name of the key at that time.' }),
    }),
    Type.Object({
      kind: Type.Literal('system', { description: 'The service itself, or its operator.' }),
      code: Type.String({ description: 'The part of the system that acted, such as `operator`.' }),
      label: Type.String({ description: 'The name shown for that part.' }),
    }),
    Type.Object({
      kind: Type.Literal('ssh_key', { description: 'An SSH key. Only imported events have it.' }),
      key_id: Field(Uuid, 'The id of the SSH key.'),
      fingerprint: Type.String({ description: 'The fingerprint of the SSH key.' }),
      label: Type.Optional(Nullable(Type.String({ description: 'The name of the SSH key, if it has one.' }))),
    }),
  ],
  { title: 'EventActor', description: 'A snapshot of the actor, taken when the event was written.' },
);
export type EventActor = Static<typeof EventActor>;

export const EventResponse = Named(
  'EventResponse',
  {
    id: Field(Uuid, 'The id of the event.'),
    org_id: Field(Uuid, 'The organization that the event belongs to.'),
    timestamp: Field(DateTime, 'The time of the change, to the microsecond.'),
    category: Type.String({ description: 'The kind of object that the event is about, such as `sandbox`.' }),
    event_type: Type.String({ description: 'The change, such as `sandbox_created`.' }),
    actor: EventActor,
    payload: Type.Unknown({ description: 'Facts about the change. Their shape depends on the event type.' }),
  },
  'One entry of the audit trail.',
);
export type EventResponse = Static<typeof EventResponse>;

export const PaginatedEventResponse = PageOf('PaginatedEventResponse', EventResponse);
