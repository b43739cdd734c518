import type { Reach } from './destination.js';
import { resolveBySystem, type Resolve } from './resolve.js';

export interface WebhookSettings {
  /** Where webhooks may lead. */
  reach: Reach;
  resolve: Resolve;
  /** The longest an attempt may take, in milliseconds. */
  timeoutMs: number;
  /** How long after that whoever has not answered counts as gone, in milliseconds. */
  claimMarginMs: number;
  /** The pause after the first attempt that failed, in milliseconds; three times as long after each further one. */
  firstRetryMs: number;
  /** How long a delivery is tried from the first attempt on, in milliseconds. */
  keepTryingMs: number;
  /** After how long of nothing but failures a webhook is disabled, in milliseconds. */
  disableAfterMs: number;
  /** How long settled deliveries are kept, in milliseconds. */
  keepMs: number;
  /** How many webhooks a process serves at once, and how many of one organization. */
  served: { total: number; each: number };
  /** After how long a webhook makes room for one that waits, in milliseconds. */
  turnMs: number;
  /** How many tests may be under way over the API at once, and how many of one organization. */
  tests: { total: number; each: number };
}

const DAY_MS = 24 * 60 * 60 * 1000;

export const DEFAULT_WEBHOOK_SETTINGS: WebhookSettings = {
  reach: { allow: [], http: false },
  resolve: resolveBySystem,
  timeoutMs: 10_000,
  claimMarginMs: 20_000,
  firstRetryMs: 5_000,
  keepTryingMs: DAY_MS,
  disableAfterMs: 5 * DAY_MS,
  keepMs: 30 * DAY_MS,
  served: { total: 32, each: 8 },
  turnMs: 5_000,
  tests: { total: 16, each: 2 },
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
