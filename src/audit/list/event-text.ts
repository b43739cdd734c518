import type pg from 'pg';
import { serializerOf } from '../../http/serializer.js';
import { shortFromPostgres } from '../../lib/instant.js';
import { lengthOf } from '../events/length.js';
import { EventActor } from '../events/schema.js';

/** What `eventText` makes an answer of, in this order. */
export const TEXT_COLUMNS = 'id, occurred_at, category, event_type, actor, payload';

/** Each as PostgreSQL writes it. No payload: it is too long to be read together with others. */
export type EventTexts = [
  id: string,
  occurredAt: string,
  category: string,
  eventType: string,
  actor: string,
  payload: string | null,
];

/** A payload that is not longer can be read without looking at how long all on a page are together. */
const SHORT_BYTES = 4_000;

/** `TEXT_COLUMNS`, without long payloads. */
export const SHORT_COLUMNS = TEXT_COLUMNS.replace(
  /payload$/,
  `case when pg_column_size(payload) <= ${SHORT_BYTES} and ${lengthOf('payload')} <= ${SHORT_BYTES} then payload end as payload`,
);

/** How rows of `TEXT_COLUMNS` are read. Casting JSON to text in SQL instead takes a fifth more of the time there. */
export const AS_TEXTS = {
  rowMode: 'array',
  types: { getTypeParser: () => (text: unknown) => text } as pg.CustomTypesConfig,
} as const;

/**
 * The same as the schema makes of `presentEvent`, as text: the payload passes through. An explicit list of fields, so that a column
 * added later stays inside.
 */
export function eventText(orgId: string, [id, at, category, type, actor, payload]: EventTexts): string {
  return (
    `{"id":"${id}","org_id":"${orgId}","timestamp":"${shortFromPostgres(at)}"` +
    `,"category":${JSON.stringify(category)},"event_type":${JSON.stringify(type)}` +
    `,"actor":${actorText(actor)},"payload":${payload}}`
  );
}

const MOST_ACTORS = 500;
const actors = new Map<string, string>();

/** Few act again and again. An imported one may have more fields than are documented. */
function actorText(stored: string): string {
  const known = actors.get(stored);
  if (known !== undefined) return known;
  const text = serializerOf(EventActor)(JSON.parse(stored));
  if (actors.size >= MOST_ACTORS) actors.clear();
  actors.set(stored, text);
  return text;
}
