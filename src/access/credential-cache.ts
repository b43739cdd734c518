import type { Changes, Channel } from '../db/changes.js';
import { ApiError } from '../http/errors.js';
import { inBatches } from '../fairness/batches.js';
import { BoundedSet } from '../lib/bounded-set.js';
import { Slots } from '../fairness/slots.js';
import { hashTextOf } from './key-secret.js';

/**
 * The longest time that a key is cached, in milliseconds. If a notification is lost on a live connection, the service
 * still refuses a revoked key within a second.
 */
const TTL_MS = 900;
const MAX_ENTRIES = 10_000;
/**
 * How many lookups run at once, and the most keys of each. Keys that were valid before have lookups of their own, so
 * that made-up keys do not delay them. For the others addresses take turns.
 */
const LOOKUPS = { concurrency: 2, maxBatch: 200 };
/** The lookups of unknown keys, in total and of one network of clients. */
const WAITING_LOOKUPS = { total: 10_000, each: 1_000 };

interface Source<Row> {
  /** The rows of the secrets, in their order. */
  find: (secrets: readonly string[]) => Promise<(Row | undefined)[]>;
  isWellFormed: (secret: string) => boolean;
  /** A notification in one of them empties the cache. */
  channels: readonly Channel[];
}

/**
 * Finds what secrets stand for and caches it for a moment, so that a client that polls costs one lookup a second.
 * Nothing is cached while the connection for notifications is down.
 */
export class CredentialCache<Row> {
  /** By hash, so that the memory of the service reveals no keys. */
  private readonly entries = new Map<string, { row: Row; generation: number; until: number }>();
  /** The lookups of this generation that are in flight. */
  private readonly inFlight = new Map<string, { at: number; key: Promise<Row | undefined> }>();
  /** Every change increments it. An entry of an earlier generation is stale. */
  private generation = 0;
  private readonly known = new BoundedSet();
  private readonly findKnown: (secret: string) => Promise<Row | undefined>;
  private readonly findNew: (secret: string, network: string) => Promise<Row | undefined>;
  private readonly waiting = new Slots(WAITING_LOOKUPS);
  private readonly unsubscribe: (() => void)[];
  private readonly isWellFormed: (secret: string) => boolean;

  constructor(
    { find, isWellFormed, channels }: Source<Row>,
    private readonly changes: Changes,
  ) {
    this.isWellFormed = isWellFormed;
    this.findKnown = inBatches(find, LOOKUPS);
    this.findNew = inBatches(find, LOOKUPS);
    this.unsubscribe = channels.map((channel) =>
      changes.subscribe(undefined, () => this.invalidate(), channel),
    );
  }

  cached(secret: string): Row | undefined {
    const entry = this.entries.get(hashTextOf(secret));
    if (entry?.generation !== this.generation || entry.until <= performance.now() || !this.changes.live) {
      return undefined;
    }
    return entry.row;
  }

  /** As it was when it was looked up: it may have ended. */
  seen(secret: string): Row | undefined {
    return this.entries.get(hashTextOf(secret))?.row;
  }

  /** `network`: of the client. */
  async find(secret: string, network: string): Promise<Row | undefined> {
    if (!this.isWellFormed(secret)) return undefined;
    const cached = this.cached(secret);
    if (cached) return cached;
    const hash = hashTextOf(secret);
    const at = performance.now();
    const lookup = this.inFlight.get(hash);
    if (lookup && lookup.at + TTL_MS > at && this.changes.live) return lookup.key;
    const key = this.load(secret, network, hash, at).finally(() => {
      if (this.inFlight.get(hash)?.key === key) this.inFlight.delete(hash);
    });
    this.inFlight.set(hash, { at, key });
    return key;
  }

  invalidate(): void {
    this.generation += 1;
    this.inFlight.clear();
  }

  close(): void {
    for (const unsubscribe of this.unsubscribe) unsubscribe();
  }

  private async load(secret: string, network: string, hash: string, at: number): Promise<Row | undefined> {
    const { generation } = this;
    const key = await (this.known.has(hash) ? this.findKnown(secret) : this.findUnknown(secret, network));
    if (key) {
      this.known.add(hash);
      if (this.entries.size >= MAX_ENTRIES) this.entries.clear();
      this.entries.set(hash, { row: key, generation, until: this.changes.live ? at + TTL_MS : at });
    }
    return key;
  }

  private async findUnknown(secret: string, network: string): Promise<Row | undefined> {
    const release = this.waiting.acquire(network);
    if (!release) throw tooManyNewKeys();
    return this.findNew(secret, network).finally(release);
  }
}

function tooManyNewKeys(): ApiError {
  return new ApiError('rate_limited', 'too many unknown keys are sent: try again', null, {
    headers: { 'retry-after': '1' },
  });
}
