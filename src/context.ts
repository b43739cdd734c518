import type { SecureContext } from 'node:tls';
import type { Logger } from 'pino';
import type { ActiveEventKeys } from './audit/events/active-keys.js';
import type { EventKeys } from './audit/events/event-keys.js';
import type { SeenHeads } from './audit/log/seen-heads.js';
import type { LongEvents } from './audit/events/long-events.js';
import type { Changes } from './db/changes.js';
import type { PgPool, Pool, Sql } from './db/pool.js';
import type { Requests } from './db/request-connections.js';
import type { ForwardSeal } from './http/forwarded.js';
import type { Certificate } from './http/tls/certificate.js';
import type { DiskReserve } from './disk/disk-reserve.js';
import type { BoundedSet } from './lib/bounded-set.js';
import type { Cursors } from './lib/cursor.js';
import type { Instant } from './lib/instant.js';
import type { Meters } from './lib/meters.js';
import type { Pace } from './fairness/pace.js';
import type { Span, Tracing } from './lib/tracing.js';
import type { RecentTouches } from './lib/recent-touches.js';
import type { StoredBytes } from './lib/stored-bytes.js';
import type { NetworkObserver } from './engine/network-record/observer.js';
import type { Runtime } from './engine/runtime.js';
import type { UseSampler } from './engine/use/use-sampler.js';
import type { Keyring } from './secrets/keyring.js';
import type { Settings } from './settings.js';
import type { VolumeStore } from './volumes/storage/store.js';

export interface Context extends Shared {
  /** In a request, its sessions see only the caller's organization; in the worker, they see all of them. */
  pool: Pool;
  /** For reads of one short statement, outside any transaction. */
  reads: Sql;
  /** Set in a sampled request. */
  span?: Span;
  /** The context that the requests of an organization share. */
  shared?: Context;
}

export interface WorkerContext extends Context {
  pool: PgPool;
}

export interface ServiceContext extends WorkerContext {
  /** Replaces `pool` in requests. */
  requests: Requests;
  /** Undefined: HTTP without TLS. */
  certificate?: Certificate | undefined;
  /** The age of the oldest segment of the log that is not archived. Undefined: the log is not archived. */
  walWaitingSecs?: (() => number) | undefined;
}

/** The dependencies without a connection, the same for requests and worker. */
export interface Shared {
  runtime: Runtime;
  /** The use of the sandboxes on the engine of this process. */
  use: UseSampler;
  /** The reports of the gateway about the sandboxes on the engine of this process. */
  network: NetworkObserver;
  volumes: VolumeStore;
  disk: DiskReserve;
  cursors: Cursors;
  /** The current keys for secrets; a rotation changes them. */
  keyring: () => Keyring;
  eventKeys: () => EventKeys;
  /** The keys that mark new events; the sealer activates a new key once it is registered. */
  activeKeys: ActiveEventKeys;
  /** The last known end of each event log, stored outside the database. */
  seenHeads: SeenHeads;
  changes: Changes;
  /** This process, as other processes on the database see it. */
  peer: Peer;
  /** The lease on the engine of this process. Its worker replaces the answer. */
  engineLease: { isHeld: () => boolean };
  /** The latest activity of callers in each sandbox, through this process. */
  touches: RecentTouches;
  /** Quotas that had much room when they were last read (quotas/reserve.ts). */
  roomyQuotas: BoundedSet;
  /** Bounds the answers that are stored for repeated requests. */
  storedAnswers: StoredBytes;
  /** Bounds the bytes of audit events that requests make. */
  longEvents: LongEvents;
  /** Lets an organization rest while others are active. */
  pace: Pace;
  now: () => Instant;
  log: Logger;
  meters: Meters;
  /** Undefined: no traces are exported. */
  tracing?: Tracing | undefined;
  settings: Settings;
  /** Undefined: this process serves no previews. */
  previews?: PreviewLinks | undefined;
  /** Aborts when the service stops; waiting requests then answer at once. */
  stopping: AbortSignal;
  /** Aborts before that: requests are still served, and clients should turn to another process. */
  draining?: AbortSignal;
}

/** The URLs of previews. */
interface PreviewLinks {
  /** Such as `http://8080-….localhost:8081`, without a final slash. */
  originOf(place: { port: number; sandboxId: string }): string;
}

export interface Peer {
  /** The URL at which other processes reach the API; null until it listens. */
  address: string | null;
  /** The place from which they reach it; null: everywhere. */
  addressPlace: string | null;
  /** The place of this process. */
  place: string;
  seal: ForwardSeal;
  /** The authorities of the other processes; undefined: the well-known ones. */
  trust?: SecureContext;
}
