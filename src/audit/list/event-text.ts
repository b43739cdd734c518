import type pg from 'pg';
import type { Sql, Statement } from '../../db/pool.js';
import { serializerOf } from '../../http/serializer.js';
import { shortFromPostgres } from '../../lib/instant.js';
import { payloadLength } from '../events/payload-length.js';
import { EventActor } from '../events/schema.js';

export const TEXT_COLUMNS = 'id, occurred_at, category, event_type, actor, payload';

export interface EventTextRow {
  id: string;
  occurred_at: string;
  category: string;
  event_type: string;
  actor: string;
  /** Null: the statement left out a long payload. */
  payload: string | null;
}

/** A page of payloads up to this length is read without measuring their sum. */
const SHORT_BYTES = 4_000;

export const SHORT_COLUMNS = TEXT_COLUMNS.replace(
  /payload$/,
  `case when pg_column_size(payload) <= ${SHORT_BYTES} and ${payloadLength('payload')} <= ${SHORT_BYTES} then payload end as payload`,
);

/** Casting JSON to text in SQL instead takes 20 % more of the time in PostgreSQL. */
const AS_TEXTS = {
  rowMode: 'array',
  types: { getTypeParser: () => (text: unknown) => text } as pg.CustomTypesConfig,
} as const;

type TextValues = [string, string, string, string, string, string | null];

/**
 * For 100 events the driver takes 50 % more CPU time with objects as rows; names given to its arrays cost nothing
 * measurable.
 */
export async function readTextRows(sql: Sql, statement: Statement): Promise<EventTextRow[]> {
  const { rows } = await sql.query<TextValues & Record<string, unknown>>({ ...statement, ...AS_TEXTS });
  return rows.map(([id, occurred_at, category, event_type, actor, payload]) => ({
    id,
    occurred_at,
    category,
    event_type,
    actor,
    payload,
  }));
}

const serializeActor = serializerOf(EventActor);
const MAX_ACTORS = 500;

/** Writes stored events as JSON text. The text equals the serialized `presentEvent`, but payloads are not parsed. */
export class EventRenderer {
  /** The JSON of each actor by its stored text: few actors write most events. */
  private readonly actors = new Map<string, string>();

  render(orgId: string, { id, occurred_at, category, event_type, actor, payload }: EventTextRow): string {
    return (
      `{"id":"${id}","org_id":"${orgId}","timestamp":"${shortFromPostgres(occurred_at)}"` +
      `,"category":${JSON.stringify(category)},"event_type":${JSON.stringify(event_type)}` +
      `,"actor":${this.renderActor(actor)},"payload":${payload}}`
    );
  }

  /** Leaves out undocumented fields, which imported actors may have. */
  private renderActor(stored: string): string {
    const cached = this.actors.get(stored);
    if (cached !== undefined) return cached;
    const text = serializeActor(JSON.parse(stored));
    if (this.actors.size >= MAX_ACTORS) this.actors.clear();
    this.actors.set(stored, text);
    return text;
  }
}
