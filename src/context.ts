import type pg from 'pg';
import type { Logger } from 'pino';
import type { Changes } from './db/changes.js';
import type { Pool, Sql } from './db/pool.js';
import type { Requests } from './db/requests.js';
import type { EventHeads } from './events/heads.js';
import type { EventKeys } from './events/signing-key.js';
import type { Cursors } from './lib/cursor.js';
import type { Instant } from './lib/instant.js';
import type { Runtime } from './runtimes/runtime.js';
import type { Keyring } from './secrets/keyring.js';
import type { PriceBook } from './usage/price.js';
import type { VolumeStore } from './volumes/store.js';
import { DEFAULT_WEBHOOK_SETTINGS, type WebhookSettings } from './webhooks/settings.js';

/** What operations are given. Tests override any of it. */
export interface Context extends Shared {
  /** What a request works with shows its own organization; what the worker works with, all of them. */
  pool: Pool;
  /** Beside it, for reads of one short statement. */
  reads: Sql;
}

/** What the loops of the worker are given. */
export interface WorkerContext extends Context {
  pool: pg.Pool;
}

/** What the whole service is given. */
export interface ServiceContext extends WorkerContext {
  /** What serves requests in place of `pool`; see db/requests.ts. */
  requests: Requests;
}

/** What is the same for everybody: no connections are among it. */
export interface Shared {
  runtime: Runtime;
  /** Where the data of volumes is. */
  volumes: VolumeStore;
  /** Signs the cursors of lists. */
  cursors: Cursors;
  /** The keys under which secrets are sealed, as they are now. */
  keyring: () => Keyring;
  /** The keys that sign where the event log ends, as they are now. */
  eventKeys: () => EventKeys;
  /** How far the event logs went when this machine saw them last. */
  eventHeads: EventHeads;
  /** Tells when a sandbox changed, in whichever process. */
  changes: Changes;
  now: () => Instant;
  log: Logger;
  settings: Settings;
  /** Aborts when the service is stopping: whoever waits answers at once. */
  stopping: AbortSignal;
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
