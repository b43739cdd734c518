import { describe, expect, test } from 'vitest';
import { CATALOGUE, type EventType } from '../../src/audit/events/catalogue.js';
import type { EventContent } from '../../src/audit/events/hash-chain.js';
import type { EventActor } from '../../src/audit/events/schema.js';
import { ocsfOf } from '../../src/audit/ocsf/present.js';
import { validatorOf } from '../../src/http/validation.js';
import { ocsfFaults } from '../support/ocsf-1-8.js';

const ORG = '01a206d4-e8a8-7168-9d60-71efee090b70';
const ID = '01a206d4-e8a8-7168-9d60-71efee090b71';
const AT = '2026-11-23T05:15:46.207392Z';

const ACTORS: Record<EventActor['kind'], EventActor> = {
  user: { kind: 'user', user_id: ID, label: 'Ada', redacted_email: 'a***@example.com' },
  api_key: { kind: 'api_key', api_key_id: ID, name: 'ci' },
  system: { kind: 'system', code: 'reconciler', label: 'Sandkeep reconciler' },
  ssh_key: { kind: 'ssh_key', key_id: ID, fingerprint: 'SHA256:abc', label: null },
};

interface Schema {
  type?: string;
  const?: unknown;
  format?: string;
  enum?: unknown[];
  anyOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
}

/** A value of a payload's schema. `variant`: which of the alternatives. */
function sample(schema: Schema, variant: number): unknown {
  const { type, format, enum: words, anyOf, items, properties } = schema;
  if ('const' in schema) return schema.const;
  if (anyOf) return sample(anyOf[variant % anyOf.length]!, variant);
  if (words) return words[variant % words.length];
  switch (type) {
    case 'string':
      return format === 'uuid' ? ID : format === 'date-time' ? AT : `text ${variant}`;
    case 'integer':
    case 'number':
      return variant;
    case 'boolean':
      return variant % 2 === 0;
    case 'array':
      return Array.from({ length: variant }, () => sample(items!, variant));
    case 'object':
      return Object.fromEntries(
        Object.entries(properties ?? {}).map(([name, each]) => [name, sample(each, variant)]),
      );
    default:
      return null;
  }
}

function eventOf(type: EventType, actor: EventActor, payload: unknown, variant: number): EventContent {
  const { category } = CATALOGUE[type];
  const resource_id = variant === 0 ? null : ID;
  return { org_id: ORG, id: ID, occurred_at: AT, category, event_type: type, actor, payload, resource_id };
}

describe.each(Object.keys(CATALOGUE) as EventType[])('%s', (type) => {
  const { actors, payload: schema } = CATALOGUE[type];
  const validate = validatorOf(schema);

  test.each([0, 1, 2])('is a valid event of OCSF, payload %s', (variant) => {
    const payload = sample(schema as Schema, variant);
    expect(validate(payload)).toBe(true);
    for (const kind of [...actors, 'ssh_key'] as const) {
      const event = eventOf(type, ACTORS[kind], payload, variant);
      const written = JSON.parse(JSON.stringify(ocsfOf(event, null)));
      expect(ocsfFaults(written)).toEqual([]);
      expect(written).toMatchObject({
        time: Date.parse('2026-11-23T05:15:46.207Z'),
        metadata: { uid: ID, event_code: type, tenant_uid: ORG, original_time: AT },
        unmapped: { timestamp: AT, event_type: type, actor: ACTORS[kind], payload, log: null },
      });
    }
  });
});

test('the actors of events keep their identities', () => {
  const actorOf = (actor: EventActor) =>
    ocsfOf(eventOf('volume_restored', actor, { volume_id: ID, name: 'x' }, 1), null).actor;
  expect(Object.values(ACTORS).map(actorOf)).toEqual([
    { user: { uid: ID, name: 'Ada', type_id: 1, type: 'User' } },
    { user: { uid: ID, name: 'ci', credential_uid: ID, type_id: 4, type: 'Service' } },
    { app_name: 'Sandkeep reconciler', app_uid: 'reconciler' },
    { user: { uid: ID, name: 'SHA256:abc', credential_uid: ID, type_id: 99, type: 'SSH Key' } },
  ]);
});

test('failures and sign-ins have their status, severity and class', () => {
  const of = (type: EventType, payload: object) => ocsfOf(eventOf(type, ACTORS.system, payload, 1), null);
  expect(of('sandbox_failed', { sandbox_id: ID, name: 'web', run_id: ID, reason: 'crashed' })).toMatchObject({
    class_uid: 3004,
    activity_id: 11,
    type_uid: 300_411,
    status: 'Failure',
    severity: 'Medium',
    status_detail: 'crashed',
    entity: { uid: ID, name: 'web', type: 'Sandbox', type_id: 99 },
    metadata: { correlation_uid: ID },
  });
  const key = { api_key_id: ID, name: 'ci', prefix: 'skp_x' };
  expect(of('api_key_refused_often', { ...key, refusals: 9, reasons: ['expired'] })).toMatchObject({
    class_uid: 3002,
    activity_id: 1,
    status: 'Failure',
    user: { uid: ID, name: 'ci', credential_uid: ID },
  });
  expect(of('console_session_ended', { ...key, session_id: ID, reason: 'signed_out' })).toMatchObject({
    class_uid: 3002,
    activity_id: 2,
    session: { uid: ID },
  });
  expect(of('events_exported', { format: 'ocsf' })).toMatchObject({
    class_uid: 6003,
    activity_id: 2,
    api: { operation: 'events_exported' },
    resources: [{ uid: ID, type: 'Audit Log' }],
  });
});

test('an imported event of any type and payload is valid', () => {
  for (const payload of [null, 'text', [1], { name: 7, run_id: {} }, { name: '' }]) {
    const event = {
      ...eventOf('volume_restored', ACTORS.user, payload, 0),
      event_type: 'else',
      category: 'other',
    };
    const written = JSON.parse(JSON.stringify(ocsfOf(event, null)));
    expect(ocsfFaults(written)).toEqual([]);
    expect(written).toMatchObject({
      class_uid: 3004,
      activity_id: 0,
      message: 'else',
      entity: { type: 'other' },
    });
  }
});

test('the checks of this test find faults', () => {
  const valid = ocsfOf(eventOf('sandbox_failed', ACTORS.system, { name: 'web' }, 1), null);
  const faulty = (change: object) => ocsfFaults({ ...valid, ...change }).length;
  expect(ocsfFaults(valid)).toEqual([]);
  for (const change of [
    { class_uid: 1 },
    { activity_id: 14 },
    { type_uid: 1 },
    { severity_id: 7 },
    { time: AT },
    { entity: undefined },
    { entity: { type_id: 99 } },
    { actor: {} },
    { invented: 1 },
    { category_uid: 6 },
  ]) {
    expect(faulty(change)).toBeGreaterThan(0);
  }
});
