import { shortInstant } from '../../lib/instant.js';
import { VERSION } from '../../lib/version.js';
import { CATALOGUE, type EventType } from '../events/catalogue.js';
import type { EventContent } from '../events/hash-chain.js';
import type { EventActor } from '../events/schema.js';
import type { LogFacts } from './log-facts.js';
import { networkActivityOf } from './network-activity.js';
import { CLASSES, ENTITY_TYPES, OCSF_MAPPINGS, OCSF_VERSION, SEVERITIES, UNKNOWN_TYPE } from './mapping.js';

const PRODUCT = 'Sandkeep';
const OTHER = 99;

/** The event as an object of OCSF. `log`: its place in the log; null outside of the log. */
export function ocsfOf(event: EventContent, log: LogFacts | null) {
  const { event_type, category, actor, org_id, id } = event;
  const type = Object.hasOwn(CATALOGUE, event_type) ? (event_type as EventType) : undefined;
  const chosen = type === undefined ? UNKNOWN_TYPE : OCSF_MAPPINGS[type];
  const { name: class_name, uid: class_uid, category: group, activities } = CLASSES[chosen.class];
  const { severity: severity_id = 1, isFailure = false } = chosen;
  const names: Record<number, string> = activities;
  const activity_id = typeof chosen.activity === 'number' ? chosen.activity : OTHER;
  const activity_name = typeof chosen.activity === 'number' ? names[chosen.activity] : chosen.activity;
  const timestamp = shortInstant(event.occurred_at);
  return {
    activity_id,
    activity_name,
    category_uid: group.uid,
    category_name: group.name,
    class_uid,
    class_name,
    type_uid: class_uid * 100 + activity_id,
    type_name: `${class_name}: ${activity_name}`,
    time: Date.parse(event.occurred_at),
    severity_id,
    severity: SEVERITIES[severity_id],
    ...(isFailure ? { status_id: 2, status: 'Failure' } : { status_id: 1, status: 'Success' }),
    ...optional('status_detail', field(event.payload, 'reason')),
    message: type === undefined ? event_type : CATALOGUE[type].when.replace(/(?<=\.) .*/, ''),
    metadata: {
      version: OCSF_VERSION,
      product: { name: PRODUCT, vendor_name: PRODUCT, version: VERSION },
      uid: id,
      event_code: event_type,
      tenant_uid: org_id,
      log_name: 'audit',
      original_time: timestamp,
      ...(log ? { sequence: log.seq } : {}),
      ...optional('correlation_uid', correlationOf(event.payload)),
    },
    // The class of network activity has no actor.
    ...(chosen.class === 'network_activity' ? {} : { actor: actorOf(actor) }),
    ...detailsOf(chosen.class, event),
    unmapped: {
      timestamp,
      event_type,
      category,
      resource_id: event.resource_id,
      actor,
      payload: event.payload,
      log,
    },
  };
}

function actorOf(actor: EventActor) {
  switch (actor.kind) {
    case 'system':
      return { app_name: actor.label, app_uid: actor.code };
    case 'user':
    case 'api_key':
    case 'ssh_key':
      return { user: userOf(actor) };
  }
}

function userOf(actor: EventActor) {
  switch (actor.kind) {
    case 'user':
      return { uid: actor.user_id, name: actor.label, type_id: 1, type: 'User' };
    case 'api_key': {
      const { api_key_id: uid, name } = actor;
      return { uid, name, credential_uid: uid, type_id: 4, type: 'Service' };
    }
    case 'ssh_key': {
      const { key_id: uid, fingerprint, label } = actor;
      return { uid, name: label ?? fingerprint, credential_uid: uid, type_id: OTHER, type: 'SSH Key' };
    }
    case 'system':
      return { uid: actor.code, name: actor.label, type_id: 3, type: 'System' };
  }
}

function detailsOf(name: keyof typeof CLASSES, event: EventContent) {
  const { payload, actor } = event;
  switch (name) {
    case 'entity_management':
      return { entity: entityOf(event) };
    case 'authentication':
      return { user: loggedOn(event), service: { name: PRODUCT }, ...sessionOf(payload) };
    case 'api_activity':
      return {
        api: { operation: event.event_type, service: { name: PRODUCT }, version: 'v1' },
        resources: [resourceOf(event)],
        // Audit events have no address of the caller, and the class requires an endpoint.
        src_endpoint: actor.kind === 'system' ? { svc_name: actor.label } : { name: 'Unknown' },
      };
    case 'network_activity':
      return networkActivityOf(payload);
  }
}

function entityOf(event: EventContent) {
  const { uid, name, type } = resourceOf(event);
  const named = { uid, ...optional('name', name) };
  if (event.category === 'org') return { ...named, type_id: 4, type, org: named };
  if (event.category === 'member') {
    const person = { uid: field(event.payload, 'user_id') ?? uid, ...optional('name', name) };
    return { ...person, type_id: 2, type, user: { ...person, type_id: 1, type } };
  }
  return { ...named, type_id: OTHER, type };
}

/** The object of the event. Without one it is the organization. */
function resourceOf({ resource_id, org_id, category, payload }: EventContent) {
  const name = field(payload, 'name') ?? field(payload, 'destination') ?? field(payload, 'redacted_email');
  return { uid: resource_id ?? org_id, ...optional('name', name), type: ENTITY_TYPES[category] ?? category };
}

function loggedOn({ actor, payload }: EventContent) {
  const uid = field(payload, 'api_key_id');
  if (uid === undefined) return userOf(actor);
  const name = field(payload, 'name');
  return { uid, ...optional('name', name), credential_uid: uid, type_id: 4, type: 'Service' };
}

function sessionOf(payload: unknown) {
  const uid = field(payload, 'session_id');
  return uid === undefined ? {} : { session: { uid } };
}

function correlationOf(payload: unknown): string | undefined {
  return field(payload, 'run_id') ?? field(payload, 'session_id') ?? field(payload, 'delivery_id');
}

function optional<Name extends string>(name: Name, value: string | undefined): Partial<Record<Name, string>> {
  return value === undefined ? {} : ({ [name]: value } as Record<Name, string>);
}

/** A text of the payload, which of imported events has any shape. */
function field(payload: unknown, name: string): string | undefined {
  if (typeof payload !== 'object' || payload === null || !Object.hasOwn(payload, name)) return undefined;
  const value: unknown = payload[name as keyof typeof payload];
  return typeof value === 'string' && value !== '' ? value : undefined;
}
