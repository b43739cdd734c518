import type { Changes } from '../db/changes.js';
import type { Sql } from '../db/pool.js';
import { inBatches } from '../lib/batches.js';
import { findKeys } from './key-lookup.js';
import type { SecretRow } from './key-queries.js';
import { hashTextOf, isWellFormedKey } from './key-secret.js';

/**
 * The longest a key is remembered, in milliseconds: were a notification lost although the connection for them stands, a
 * revoked key is still refused within a second.
 */
const REMEMBER_MS = 900;
const MOST = 10_000;
/**
 * How many looks at the database are under way at once, and of how many keys each. Whoever makes keys up, and from wherever,
 * takes no more of the connections that all else needs, and holds a good key up for no longer than a look takes.
 */
const LOOKS = { atOnce: 4, most: 200 };

/**
 * Finds keys, and remembers those it found for a moment: a client that polls costs one look at the database a second.
 * Every change of any key makes it forget all (migrations/0007_keys.sql announces it), and while the connection for
 * notifications is down nothing is remembered.
 */
export class KeyCache {
  /** By the hash: nobody who reads the memory of the service gets the keys from here. */
  private readonly found = new Map<string, { key: SecretRow; generation: number; until: number }>();
  /** Looks at the database that are under way, of this generation. */
  private readonly looking = new Map<string, { at: number; key: Promise<SecretRow | undefined> }>();
  /** Grows with every change: what was read before it is not used after it. */
  private generation = 0;
  private readonly findKey: (secret: string) => Promise<SecretRow | undefined>;
  private readonly unsubscribe: () => void;

  constructor(
    sql: Sql,
    private readonly changes: Changes,
  ) {
    this.findKey = inBatches((secrets: readonly string[]) => findKeys(sql, secrets), LOOKS);
    this.unsubscribe = changes.subscribe(undefined, () => this.forget(), 'key');
  }

  /** The same as `find`, when it can be told at once. */
  remembered(secret: string): SecretRow | undefined {
    const known = this.found.get(hashTextOf(secret));
    if (known?.generation !== this.generation || known.until <= performance.now() || !this.changes.live) {
      return undefined;
    }
    return known.key;
  }

  /** The key that a secret is of, in whatever state; undefined for every kind of text that is no secret alike. */
  async find(secret: string): Promise<SecretRow | undefined> {
    if (!isWellFormedKey(secret)) return undefined;
    const known = this.remembered(secret);
    if (known) return known;
    const place = hashTextOf(secret);
    const at = performance.now();
    const under = this.looking.get(place);
    if (under && under.at + REMEMBER_MS > at && this.changes.live) return under.key;
    const key = this.look(secret, place, at).finally(() => {
      if (this.looking.get(place)?.key === key) this.looking.delete(place);
    });
    this.looking.set(place, { at, key });
    return key;
  }

  forget(): void {
    this.generation += 1;
    this.looking.clear();
  }

  close(): void {
    this.unsubscribe();
  }

  private async look(secret: string, place: string, at: number): Promise<SecretRow | undefined> {
    const { generation } = this;
    const key = await this.findKey(secret);
    if (key) {
      if (this.found.size >= MOST) this.found.clear();
      this.found.set(place, { key, generation, until: this.changes.live ? at + REMEMBER_MS : at });
    }
    return key;
  }
}
