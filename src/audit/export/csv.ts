import { csvLines } from '../../lib/csv.js';
import { shortInstant } from '../../lib/instant.js';
import { actorId } from '../events/actor.js';
import type { LogEntry } from '../log/log-entry.js';

export const CSV_HEADER = csvLines([
  [
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
  ],
]);

/** A line for each entry, with actor and payload as JSON. An event that retention dropped has no line. */
export function csvOfEntries(entries: readonly LogEntry[]): string {
  return csvLines(entries.map(recordOf).filter((record) => record !== undefined));
}

function recordOf({
  seq,
  event_id,
  occurred_at,
  leaf,
  link,
  event,
}: LogEntry): (string | number)[] | undefined {
  if (!event) return undefined;
  const { category, event_type, actor, payload, resource_id } = event;
  return [
    seq,
    event_id,
    shortInstant(occurred_at),
    category,
    event_type,
    actor.kind,
    actorId(actor),
    JSON.stringify(actor),
    resource_id ?? '',
    JSON.stringify(payload),
    leaf.toString('hex'),
    link.toString('hex'),
  ];
}
