import type { Position } from '../lib/cursor.js';
import { instantFromPostgres, shortFromPostgres } from '../lib/instant.js';
import type { SandboxStatus } from './spec/schema.js';
import { shownSpec } from './spec/text.js';

/** What `sandboxText` makes an answer of, in this order, each as PostgreSQL writes it. `s`: the table. */
export const SHOWN_COLUMNS = `s.id, s.org_id, s.name, s.slug, s.status, s.ephemeral, s.created_at::text, s.last_failure_message,
  s.spec::text, s.started_at::text, s.stopped_at::text, s.status_reason, s.runtime`;

/**
 * As it is stored, in bytes. One of a usual request takes 1,500. It may be compressed to a ninetieth at most, so none that is read as
 * short has more than 360 KB; to ask for its real length would be to unpack each twice.
 */
const SHORT_BYTES = 4_000;

/** The same for a short read, for which nobody waits long: a longer specification is left out, see `isShort`. */
export const SHORT_COLUMNS = SHOWN_COLUMNS.replace(
  's.spec::text',
  `case when pg_column_size(s.spec) > ${SHORT_BYTES} then '' else s.spec::text end`,
);

/** Is all of it there? */
export function isShort(row: ShownRow): boolean {
  return row[8] !== '';
}

export type ShownRow = [
  id: string,
  orgId: string,
  name: string,
  slug: string,
  status: SandboxStatus,
  ephemeral: boolean,
  createdAt: string,
  lastFailureMessage: string | null,
  spec: string | null,
  startedAt: string | null,
  stoppedAt: string | null,
  statusReason: string | null,
  runtime: string | null,
];

/**
 * The same as the schema makes of `presentSandbox`, as text: for reads, where the schema would take most of the time. An explicit list
 * of fields, so that a column added later stays inside.
 */
export function sandboxText(row: ShownRow): string {
  const [id, orgId, name, slug, status, ephemeral, createdAt, message, spec, ...rest] = row;
  const [startedAt, stoppedAt, reason, runtime] = rest;
  return (
    `{"id":"${id}","org_id":"${orgId}","name":${JSON.stringify(name)},"slug":${JSON.stringify(slug)}` +
    `,"status":"${status}","ephemeral":${ephemeral},"created_at":"${shortFromPostgres(createdAt)}"` +
    `,"last_failure_message":${JSON.stringify(message)},"spec":${shownSpec(spec)}` +
    `,"started_at":${time(startedAt)},"stopped_at":${time(stoppedAt)},"status_reason":${JSON.stringify(reason)}` +
    `,"runtime":${JSON.stringify(runtime)}}`
  );
}

/** Where the next page goes on after this row. */
export function positionOf([id, , name, , , , createdAt]: ShownRow, by: 'name' | 'created_at'): Position {
  return [by === 'name' ? name : instantFromPostgres(createdAt), id];
}

function time(text: string | null): string {
  return text === null ? 'null' : `"${shortFromPostgres(text)}"`;
}
