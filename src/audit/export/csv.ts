import { shortInstant } from '../../lib/instant.js';
import { actorId } from '../events/actor.js';
import type { Entry } from '../log/entry.js';

const COLUMNS = [
  'seq',
  'id',
  'timestamp',
  'category',
  'event_type',
  'actor_kind',
  'actor_id',
  'actor',
  'resource_id',
  'payload',
  'leaf',
  'link',
] as const;

export function csvHead(): string {
  return `${COLUMNS.join(',')}\r\n`;
}

/** A line of CSV (RFC 4180); actor and payload as JSON. An event that retention dropped has none. */
export function csvLine({ seq, event_id, occurred_at, leaf, link, event }: Entry): string {
  if (!event) return '';
  const { category, event_type, actor, payload, resource_id } = event;
  const values = [
    ...[String(seq), event_id, shortInstant(occurred_at), category, event_type],
    ...[actor.kind, actorId(actor), JSON.stringify(actor), resource_id ?? '', JSON.stringify(payload)],
    ...[leaf.toString('hex'), link.toString('hex')],
  ];
  return `${values.map(field).join(',')}\r\n`;
}

/** What a spreadsheet would take for a formula gets an apostrophe in front. */
function field(text: string): string {
  const safe = /^[=+@\t\r-]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
