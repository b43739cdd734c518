import type { Reach } from './outbound/destination.js';
import { resolveBySystem, type Resolve } from './outbound/resolve.js';
import type { PriceBook } from './prices/price.js';

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

export interface Settings {
  /** How long a deleted volume can be restored, in milliseconds. */
  volumePurgeAfterMs: number;
  /** Between two readings of the size of a volume, in milliseconds. */
  volumeSampleMs: number;
  /** How long the row of an ephemeral sandbox stays readable after its end, in milliseconds. */
  ephemeralLingerMs: number;
  /** How long a sandbox may take to end by itself when it is stopped, in milliseconds. */
  stopGraceMs: number;
  /** The longest a request is held for `wait_for`, in milliseconds. */
  waitBudgetMs: number;
  /** How long a worker that is cut off from the database keeps its sandboxes, in milliseconds. */
  workerLeaseMs: number;
  /** How long a start waits for a place until an audit event says so, in milliseconds. */
  waitNoticeMs: number;
  /** How many requests may be held at once. */
  maxWaiters: number;
  /** How long the body of a request may take to arrive, uploads of files aside, in milliseconds. */
  bodyTimeoutMs: number;
  /** How many logs may be followed at once. */
  maxLogFollowers: number;
  /** Requests a second that a key may make, on average of ten seconds. 0: any number. */
  rateLimit: number;
  /** Requests a minute that an address may make without a key that opens something. 0: any number. */
  failedAuthLimit: number;
  /** How often the use of keys is written down, in milliseconds. */
  keyUseWriteMs: number;
  /** What usage costs. Null: nothing. */
  priceBook: PriceBook | null;
  /** How many usage reports may be under way at once. Each has a connection of the pool. */
  maxUsageStreams: number;
  /** How many exports of events may be under way at once. Each has a connection of the pool. */
  maxExports: number;
  /** How long a report of usage or an export waits for its turn, in milliseconds. */
  usagePatienceMs: number;
  /** How long its reader may take nothing while others wait for their turn, in milliseconds. Less than they wait. */
  usageIdleMs: number;
  /** How long its reader may take nothing before it is cut off in any case, in milliseconds. */
  usageStallMs: number;
  /** How long it may take until the end of it is read, in milliseconds. */
  usageLimitMs: number;
  /** After how much silence what is followed shows a sign of life, in milliseconds. */
  logKeepAliveMs: number;
  /** How many streams of events may be followed at once. */
  maxEventFollowers: number;
  webhooks: WebhookSettings;
}

export const DEFAULT_SETTINGS: Settings = {
  volumePurgeAfterMs: 24 * 60 * 60 * 1000,
  volumeSampleMs: 60 * 60 * 1000,
  ephemeralLingerMs: 15_000,
  stopGraceMs: 5_000,
  waitBudgetMs: 120_000,
  workerLeaseMs: 10_000,
  waitNoticeMs: 60_000,
  maxWaiters: 1_000,
  bodyTimeoutMs: 60_000,
  maxLogFollowers: 500,
  rateLimit: 1_000,
  failedAuthLimit: 300,
  keyUseWriteMs: 1_000,
  priceBook: null,
  maxUsageStreams: 6,
  maxExports: 4,
  usagePatienceMs: 10_000,
  usageIdleMs: 2_000,
  usageStallMs: 60_000,
  usageLimitMs: 60 * 60_000,
  logKeepAliveMs: 15_000,
  maxEventFollowers: 500,
  webhooks: DEFAULT_WEBHOOK_SETTINGS,
};
