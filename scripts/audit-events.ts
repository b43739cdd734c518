import { CATALOGUE, type EventType } from '../src/audit/events/catalogue.js';
import { CLASSES, OCSF_MAPPINGS, OCSF_VERSION } from '../src/audit/ocsf/mapping.js';

/** Writes docs/audit-events.md from the catalogue. */

interface Schema {
  type?: string | string[];
  format?: string;
  enum?: string[];
  description?: string;
  anyOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
}

const BEGINNING = `# Audit events

Made from \`src/audit/events/catalogue.ts\` by \`npm run generate\`. Do not edit.

The service writes one of these events for every change of state and of access, in the transaction of the change. Imported events keep
their types. An event has \`id\`, \`org_id\`, \`timestamp\` (microseconds), \`category\`, \`event_type\`, \`actor\` (a snapshot) and
\`payload\`. [Decision 14](decisions/0014-a-log-that-shows-what-was-changed.md) explains how a change of an event is detected. Each type names its
class and activity of OCSF ${OCSF_VERSION}, which [events.md](events.md#ocsf) describes.`;

export function auditEventsPage(): string {
  const types = Object.keys(CATALOGUE) as EventType[];
  const categories = [...new Set(types.map((type) => CATALOGUE[type].category))];
  const parts = categories.map((category) => {
    const own = types.filter((type) => CATALOGUE[type].category === category);
    return [`## Category \`${category}\``, ...own.map(describeEvent)].join('\n\n');
  });
  return `${[BEGINNING, ...parts].join('\n\n')}\n`;
}

function describeEvent(type: EventType): string {
  const { when, actors, payload } = CATALOGUE[type];
  const rows = fieldsOf(payload as Schema).map(
    ([name, schema]) => `| \`${name}\` | ${typeOf(schema)} | ${schema.description ?? ''} |`,
  );
  const kinds = actors.map((kind) => `\`${kind}\``).join(', ');
  return [
    `### \`${type}\``,
    `${when} Actors: ${kinds}. OCSF: ${ocsfNames(type)}.`,
    ['| payload | type | |', '| --- | --- | --- |', ...rows].join('\n'),
  ].join('\n\n');
}

function ocsfNames(type: EventType): string {
  const { class: name, activity } = OCSF_MAPPINGS[type];
  const activities: Record<number, string> = CLASSES[name].activities;
  return `${CLASSES[name].name}, ${typeof activity === 'number' ? activities[activity] : `Other (${activity})`}`;
}

/** Includes the fields of objects inside, by their paths. */
function fieldsOf(schema: Schema, path = ''): [string, Schema][] {
  return Object.entries(schema.properties ?? {}).flatMap(([name, field]) => {
    const optional = schema.required?.includes(name) ? '' : '?';
    return Object.keys(field.properties ?? {}).length > 0
      ? fieldsOf(field, `${path}${name}.`)
      : [[`${path}${name}${optional}`, field] as [string, Schema]];
  });
}

function typeOf({ type, format, enum: words, anyOf, items }: Schema): string {
  if (anyOf) return anyOf.map(typeOf).join(' or ');
  if (words) return words.map((word) => `\`${word}\``).join(', ');
  if (items) return `list of ${typeOf(items)}`;
  const types = [type ?? 'any'].flat();
  return types.map((one) => (one === 'string' && format !== undefined ? format : one)).join(' or ');
}
