/**
 * Facts of OCSF 1.8.0 (Open Cybersecurity Schema Framework): attributes of the classes and objects that events have.
 * Each attribute is `name:type`; `!` marks a required one, `[]` a list. Attributes of profiles are left out.
 */
const BASE =
  'activity_id:int! activity_name:text category_name:text category_uid:int! class_name:text class_uid:int! count:int ' +
  'duration:int end_time:time message:text metadata:metadata! raw_data:text severity:text severity_id:int! start_time:time ' +
  'status:text status_code:text status_detail:text status_id:int time:time! timezone_offset:int type_name:text type_uid:int! ' +
  'unmapped:any';

interface ClassFacts {
  uid: number;
  category: number;
  attributes: string;
  activities: Record<number, string>;
  anyOf?: readonly string[];
}

const OCSF_CLASSES: Record<number, ClassFacts> = {
  3004: {
    uid: 3004,
    category: 3,
    attributes: `${BASE} actor:actor comment:text entity:managed_entity! entity_result:managed_entity src_endpoint:network_endpoint`,
    activities: {
      0: 'Unknown',
      1: 'Create',
      2: 'Read',
      3: 'Update',
      4: 'Delete',
      5: 'Move',
      6: 'Enroll',
      7: 'Unenroll',
      8: 'Enable',
      9: 'Disable',
      10: 'Activate',
      11: 'Deactivate',
      12: 'Suspend',
      13: 'Resume',
    },
  },
  3002: {
    uid: 3002,
    category: 3,
    attributes: `${BASE} actor:actor is_remote:flag service:service session:session src_endpoint:network_endpoint user:user!`,
    activities: {
      0: 'Unknown',
      1: 'Logon',
      2: 'Logoff',
      3: 'Authentication Ticket',
      4: 'Service Ticket Request',
      5: 'Service Ticket Renew',
      6: 'Preauth',
      7: 'Account Switch',
    },
    anyOf: ['service', 'dst_endpoint'],
  },
  6003: {
    uid: 6003,
    category: 6,
    attributes: `${BASE} actor:actor! api:api! resources:resource_details[] src_endpoint:network_endpoint!`,
    activities: { 0: 'Unknown', 1: 'Create', 2: 'Read', 3: 'Update', 4: 'Delete' },
  },
  4001: {
    uid: 4001,
    category: 4,
    attributes: `${BASE} app_name:text connection_info:network_connection_info dst_endpoint:network_endpoint src_endpoint:network_endpoint traffic:network_traffic`,
    activities: {
      0: 'Unknown',
      1: 'Open',
      2: 'Close',
      3: 'Reset',
      4: 'Fail',
      5: 'Refuse',
      6: 'Traffic',
      7: 'Listen',
    },
    anyOf: ['dst_endpoint', 'src_endpoint'],
  },
};

interface ObjectFacts {
  attributes: string;
  anyOf?: readonly string[];
  typeIds?: readonly number[];
}

const OCSF_OBJECTS: Record<string, ObjectFacts> = {
  metadata: {
    attributes:
      'correlation_uid:text event_code:text labels:text[] log_name:text log_provider:text log_version:text logged_time:time ' +
      'original_event_uid:text original_time:text processed_time:time product:product! profiles:text[] sequence:int ' +
      'tenant_uid:text type:text uid:text version:text!',
  },
  product: {
    attributes: 'lang:text name:text path:text uid:text url_string:text vendor_name:text version:text',
    anyOf: ['name', 'uid'],
  },
  actor: {
    attributes: 'app_name:text app_uid:text invoked_by:text session:session user:user',
    anyOf: ['process', 'user', 'invoked_by', 'session', 'app_name', 'app_uid'],
  },
  user: {
    attributes:
      'credential_uid:text display_name:text domain:text full_name:text name:text org:organization type:text type_id:int ' +
      'uid:text uid_alt:text',
    anyOf: ['account', 'name', 'uid'],
    typeIds: [0, 1, 2, 3, 4, 99],
  },
  organization: { attributes: 'name:text ou_name:text ou_uid:text uid:text', anyOf: ['name', 'uid'] },
  managed_entity: {
    attributes: 'data:any name:text org:organization type:text type_id:int uid:text user:user version:text',
    anyOf: ['name', 'uid', 'device', 'group', 'org', 'policy', 'user'],
    typeIds: [0, 1, 2, 3, 4, 5, 6, 7, 99],
  },
  api: { attributes: 'operation:text! service:service version:text' },
  service: { attributes: 'name:text uid:text version:text', anyOf: ['name', 'uid'] },
  session: { attributes: 'created_time:time credential_uid:text expiration_time:time issuer:text uid:text' },
  network_endpoint: {
    attributes:
      'domain:text hostname:text ip:text name:text port:int svc_name:text type:text type_id:int uid:text',
    anyOf: [
      'ip',
      'uid',
      'name',
      'hostname',
      'svc_name',
      'instance_uid',
      'interface_uid',
      'interface_name',
      'domain',
    ],
  },
  network_connection_info: {
    attributes: 'direction:text direction_id:int! protocol_name:text protocol_num:int uid:text',
  },
  network_traffic: { attributes: 'bytes:int bytes_in:int bytes_out:int packets:int' },
  resource_details: {
    attributes: 'data:any labels:text[] name:text namespace:text type:text uid:text version:text',
    anyOf: ['name', 'uid'],
  },
};

const SEVERITIES: Record<number, string> = {
  0: 'Unknown',
  1: 'Informational',
  2: 'Low',
  3: 'Medium',
  4: 'High',
  5: 'Critical',
  6: 'Fatal',
};
const STATUSES: Record<number, string> = { 0: 'Unknown', 1: 'Success', 2: 'Failure' };
const OTHER = 99;

type Value = Record<string, any>;

const PRIMITIVES: Record<string, (value: unknown) => boolean> = {
  int: Number.isSafeInteger,
  // Milliseconds of this century.
  time: (value) => Number.isSafeInteger(value) && (value as number) > 9e11 && (value as number) < 1e13,
  text: (value) => typeof value === 'string' && value !== '',
  flag: (value) => typeof value === 'boolean',
  any: () => true,
};

function faultsOf(
  value: Value,
  { attributes, anyOf }: Pick<ObjectFacts, 'attributes' | 'anyOf'>,
  path: string,
): string[] {
  const facts = new Map(
    attributes.split(' ').map((each) => {
      const [, name, type, list, required] = /^(\w+):(\w+)(\[\])?(!)?$/.exec(each)!;
      return [name!, { type: type!, isList: list !== undefined, isRequired: required !== undefined }];
    }),
  );
  const faults = Object.entries(value).flatMap(([name, content]) => {
    if (content === undefined) return [];
    const fact = facts.get(name);
    if (!fact) return [`${path}.${name}: no such attribute`];
    if (fact.isList !== Array.isArray(content)) return [`${path}.${name}: list or not`];
    const check = PRIMITIVES[fact.type];
    return (fact.isList ? content : [content]).flatMap((each: Value) => {
      if (check) return check(each) ? [] : [`${path}.${name}: not ${fact.type}: ${JSON.stringify(each)}`];
      const object = OCSF_OBJECTS[fact.type]!;
      const typeFault =
        object.typeIds && each['type_id'] !== undefined && !object.typeIds.includes(each['type_id'])
          ? [`${path}.${name}.type_id`]
          : [];
      return [...faultsOf(each, object, `${path}.${name}`), ...typeFault];
    });
  });
  for (const [name, { isRequired }] of facts) {
    if (isRequired && value[name] === undefined) faults.push(`${path}.${name}: required`);
  }
  if (anyOf && !anyOf.some((name) => value[name] !== undefined))
    faults.push(`${path}: needs one of ${anyOf.join()}`);
  return faults;
}

/** The faults of an event by the facts above; none for a valid one. */
export function ocsfFaults(event: Value): string[] {
  const facts = OCSF_CLASSES[event['class_uid']];
  if (!facts) return [`class_uid: ${event['class_uid']}`];
  const name = facts.activities[event['activity_id']];
  const same = (what: string, actual: unknown, expected: unknown) =>
    actual === expected ? [] : [`${what}: ${String(actual)} instead of ${String(expected)}`];
  return [
    ...faultsOf(event, facts, 'event'),
    ...same('category_uid', event['category_uid'], facts.category),
    ...same('type_uid', event['type_uid'], facts.uid * 100 + event['activity_id']),
    ...same('severity', event['severity'], SEVERITIES[event['severity_id']]),
    ...same('status', event['status'], STATUSES[event['status_id']]),
    ...same('version', event['metadata']?.version, '1.8.0'),
    ...(event['activity_id'] === OTHER
      ? same(
          'an activity of the class',
          Object.values(facts.activities).includes(event['activity_name']),
          false,
        )
      : same('activity_name', event['activity_name'], name)),
  ];
}
