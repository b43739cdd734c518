import { BY_KEY, ORG_ID } from '../http/example-ids.js';
import type { Examples } from '../http/examples.js';

const webhook_id = '01a206d4-f96a-775b-a087-81aeab380543';
const delivery_id = '01a206d4-faf5-7174-930c-2bfcf1841b5a';
const parameters = { webhook_id };

const WEBHOOK = {
  id: webhook_id,
  org_id: ORG_ID,
  url: 'https://hooks.example.com/sandkeep',
  description: 'Alerts',
  event_types: ['sandbox_started', 'sandbox_failed'],
  format: 'cloudevents',
  status: 'active',
  disabled_reason: null,
  failing_since: null,
  previous_secret_until: null,
  created_at: '2026-11-23T05:15:50.506157Z',
  created_by: BY_KEY,
  updated_at: '2026-11-23T05:15:50.506157Z',
};

const DELIVERY = {
  id: delivery_id,
  webhook_id,
  event_id: '01a206d4-faf3-77a0-8b6c-a34c179f6b14',
  event_type: 'webhook_tested',
  seq: null,
  status: 'delivered',
  attempts: 1,
  next_attempt_at: null,
  created_at: '2026-11-23T05:15:50.899417Z',
  settled_at: '2026-11-23T05:15:50.963502Z',
  results: [
    {
      at: '2026-11-23T05:15:50.946536Z',
      duration_ms: 12,
      response_status: 200,
      response_body: 'ok',
      error: null,
    },
  ],
};

export const webhookExamples: Examples = {
  list_webhooks: {
    parameters: { limit: 20 },
    answer: { data: [WEBHOOK], has_more: false, next_cursor: null },
  },
  create_webhook: {
    body: {
      url: WEBHOOK.url,
      description: WEBHOOK.description,
      event_types: WEBHOOK.event_types,
      format: WEBHOOK.format,
    },
    answer: { ...WEBHOOK, secret: 'whsec_RVhBTVBMRUVYQU1QTEVFWEFNUExFRVhBTVBMRTAx' },
  },
  get_webhook: { parameters, answer: WEBHOOK },
  update_webhook: {
    parameters,
    body: { event_types: ['!volume_created'] },
    answer: { ...WEBHOOK, event_types: ['!volume_created'], updated_at: '2026-11-23T05:20:00.773152Z' },
  },
  delete_webhook: { parameters, answer: { message: 'webhook deleted' } },
  rotate_webhook_secret: {
    parameters,
    body: { overlap_secs: 3600 },
    answer: {
      ...WEBHOOK,
      previous_secret_until: '2026-11-23T06:15:51.039027Z',
      secret: 'whsec_RVhBTVBMRUVYQU1QTEVFWEFNUExFRVhBTVBMRTAy',
    },
  },
  test_webhook: { parameters, answer: DELIVERY },
  list_webhook_deliveries: {
    parameters: { ...parameters, limit: 20 },
    answer: { data: [DELIVERY], has_more: false, next_cursor: null },
  },
  redeliver_webhook_event: {
    parameters: { webhook_id, delivery_id },
    answer: {
      ...DELIVERY,
      status: 'pending',
      next_attempt_at: '2026-11-23T05:20:51.193622Z',
      settled_at: null,
    },
  },
};
