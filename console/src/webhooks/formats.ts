import type { WebhookResponse } from '../lib/api-types';

export type WebhookFormat = WebhookResponse['format'];

export const FORMATS: Record<WebhookFormat, string> = {
  sandkeep: 'Sandkeep',
  cloudevents: 'CloudEvents 1.0',
  ocsf: 'OCSF 1.8.0',
};
