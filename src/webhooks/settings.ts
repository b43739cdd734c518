import { resolveBySystem, type Reach, type Resolve } from './destination.js';

export interface WebhookSettings {
  /** Where webhooks may lead. */
  reach: Reach;
  resolve: Resolve;
  /** The longest an attempt may take, in milliseconds. */
  timeoutMs: number;
  /** The pause after the first attempt that failed, in milliseconds; three times as long after each further one. */
  firstRetryMs: number;
  /** How long a delivery is tried, in milliseconds. */
  keepTryingMs: number;
  /** After how long of nothing but failures a webhook is disabled, in milliseconds. */
  disableAfterMs: number;
  /** How long settled deliveries are kept, in milliseconds. */
  keepMs: number;
}

const DAY_MS = 24 * 60 * 60 * 1000;

export const DEFAULT_WEBHOOK_SETTINGS: WebhookSettings = {
  reach: { allow: [], http: false },
  resolve: resolveBySystem,
  timeoutMs: 10_000,
  firstRetryMs: 5_000,
  keepTryingMs: DAY_MS,
  disableAfterMs: 5 * DAY_MS,
  keepMs: 30 * DAY_MS,
};

/** As the operator wants it. */
export function webhookSettings({
  webhookAllow: allow = [],
  webhookHttp: http = false,
}: {
  webhookAllow?: readonly string[];
  webhookHttp?: boolean;
}): WebhookSettings {
  return { ...DEFAULT_WEBHOOK_SETTINGS, reach: { allow, http } };
}
