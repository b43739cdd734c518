import { BY_KEY, ORG_ID, SANDBOX_ID } from '../http/example-ids.js';
import type { Examples } from '../http/examples.js';

const EVENT = {
  id: '01a206d4-e8a8-7168-9d60-71efee090b70',
  org_id: ORG_ID,
  timestamp: '2026-11-23T05:15:46.207392Z',
  category: 'sandbox',
  event_type: 'sandbox_created',
  actor: BY_KEY,
  payload: {
    sandbox_id: SANDBOX_ID,
    name: 'web',
    slug: 'lively-pine-uiaj',
    image: 'python:3.12',
    previous_status: null,
    status: 'created',
    reason: 'requested',
  },
};

const { id, timestamp, org_id, ...change } = EVENT;
const EXPORTED = [
  { seq: 4, id, timestamp, leaf: '92de…5d9f', link: '94ed…66c6', org_id, ...change, resource_id: SANDBOX_ID },
  {
    checkpoint: {
      org_id,
      seq: 4,
      at: '2026-11-23T05:15:50.972934Z',
      key_id: '49855c39e6d9f564',
      link: '94ed…66c6',
      signature: 'KNdl…Aw==',
      marked_from: 1,
    },
  },
];

export const eventExamples: Examples = {
  list_events: {
    parameters: { category: 'sandbox', limit: 20 },
    answer: { data: [EVENT], has_more: false, next_cursor: null },
  },
  export_events: {
    parameters: { format: 'ndjson' },
    answer: EXPORTED.map((line) => `${JSON.stringify(line)}\n`).join(''),
  },
  stream_events: {
    parameters: { event_type: 'sandbox_created', since: '2026-11-23T00:00:00Z' },
    answer: `id: 7Qm3…xw\nevent: ${EVENT.event_type}\ndata: ${JSON.stringify(EVENT)}\n\n`,
  },
  get_event: { parameters: { event_id: EVENT.id }, answer: EVENT },
};
