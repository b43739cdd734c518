import type { Logger } from 'pino';
import type { ActiveEventKeys } from './audit/events/active-keys.js';
import type { EventKeys } from './audit/events/event-keys.js';
import type { SeenHeads } from './audit/log/seen-heads.js';
import type { Changes } from './db/changes.js';
import type { PgPool, Pool, Sql } from './db/pool.js';
import type { Requests } from './db/requests.js';
import type { Cursors } from './lib/cursor.js';
import type { Instant } from './lib/instant.js';
import type { Runtime } from './runtimes/runtime.js';
import type { Keyring } from './secrets/keyring.js';
import type { Settings } from './settings.js';
import type { VolumeStore } from './volumes/storage/store.js';

/** What operations are given. Tests override any of it. */
export interface Context extends Shared {
  /** What a request works with shows its own organization; what the worker works with, all of them. */
  pool: Pool;
  /** Beside it, for reads of one short statement. */
  reads: Sql;
}

/** What the loops of the worker are given. */
export interface WorkerContext extends Context {
  pool: PgPool;
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
  /** The keys that mark new events; the sealer activates a new key once it is registered. */
  activeKeys: ActiveEventKeys;
  /** How far the event logs went when this machine saw them last. */
  seenHeads: SeenHeads;
  /** Tells when a sandbox changed, in whichever process. */
  changes: Changes;
  now: () => Instant;
  log: Logger;
  settings: Settings;
  /** Aborts when the service is stopping: whoever waits answers at once. */
  stopping: AbortSignal;
}
