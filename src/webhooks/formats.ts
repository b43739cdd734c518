import type { EventContent } from '../audit/events/hash-chain.js';
import { presentEvent } from '../audit/list/present.js';
import { readLog } from '../audit/log/log-queries.js';
import { readLogFacts, type LogFacts } from '../audit/ocsf/log-facts.js';
import { ocsfOf } from '../audit/ocsf/present.js';
import type { Sql } from '../db/pool.js';
import type { WebhookFormat } from './schema.js';

interface Content {
  type: string;
  body: string;
}

/** The schema of `data`. */
const SCHEMA =
  'https://github.com/sandkeep/sandkeep/blob/main/openapi.json#/components/schemas/EventResponse';
const JSON_TYPE = 'application/json; charset=utf-8';
/** The longest safe integer. A fixed length makes the order of texts that of numbers. */
const SEQUENCE_DIGITS = 16;

/** `seq`: the place in the log; null for a test. */
export async function contentOf(
  sql: Sql,
  format: WebhookFormat,
  event: EventContent,
  seq: number | null,
): Promise<Content> {
  switch (format) {
    case 'sandkeep': {
      const data = presentEvent(event);
      return {
        type: JSON_TYPE,
        body: JSON.stringify({ type: event.event_type, timestamp: data.timestamp, seq, data }),
      };
    }
    case 'cloudevents':
      return {
        type: 'application/cloudevents+json; charset=utf-8',
        body: JSON.stringify(cloudEventOf(event, seq)),
      };
    case 'ocsf': {
      const log = seq === null ? null : await readFacts(sql, event.org_id, seq);
      return { type: JSON_TYPE, body: JSON.stringify(ocsfOf(event, log)) };
    }
  }
}

function cloudEventOf(event: EventContent, seq: number | null) {
  const { id, org_id, category, event_type, resource_id } = event;
  const data = presentEvent(event);
  return {
    specversion: '1.0',
    id,
    source: `urn:uuid:${org_id}`,
    type: `dev.sandkeep.${event_type}`,
    ...(resource_id === null ? {} : { subject: `${category}/${resource_id}` }),
    time: data.timestamp,
    datacontenttype: 'application/json',
    dataschema: SCHEMA,
    ...(seq === null ? {} : { sequence: String(seq).padStart(SEQUENCE_DIGITS, '0') }),
    data,
  };
}

async function readFacts(sql: Sql, orgId: string, seq: number): Promise<LogFacts | null> {
  const { entries } = await readLog(sql, orgId, { afterSeq: seq - 1, upToSeq: seq }, 1);
  return (await readLogFacts(sql, orgId, entries)).get(seq) ?? null;
}
