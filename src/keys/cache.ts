import type { Changes } from '../db/changes.js';
import type { Sql } from '../db/pool.js';
import { findKey } from './authenticate.js';
import type { SecretRow } from './queries.js';
import { hashOf, isWellFormedKey } from './secret.js';

/**
 * The longest a key is remembered, in milliseconds: were a notification lost although the connection for them stands, a
 * revoked key is still refused within a second.
 */
const REMEMBER_MS = 900;
const MOST = 10_000;

/**
 * Finds keys, and remembers those it found for a moment: a client that polls costs one look at the database a second.
 * Every change of any key makes it forget all (migrations/0007_keys.sql announces it), and while the connection for
 * notifications is down nothing is remembered.
 */
export class KeyCache {
  private readonly found = new Map<string, { key: SecretRow; until: number }>();
  /** Grows with every change: what was read before it is not kept after it. */
  private generation = 0;
  private readonly unsubscribe: () => void;

  constructor(
    private readonly sql: Sql,
    private readonly changes: Changes,
  ) {
    this.unsubscribe = changes.subscribe(undefined, () => this.forget(), 'key');
  }

  /** As `findKey`. */
  async find(secret: string): Promise<SecretRow | undefined> {
    if (!isWellFormedKey(secret)) return undefined;
    // Not the secret itself: nobody who reads the memory of the service gets the keys from here.
    const hash = hashOf(secret).toString('base64');
    const at = performance.now();
    const known = this.found.get(hash);
    if (known && known.until > at && this.changes.live) return known.key;
    const { generation } = this;
    const key = await findKey(this.sql, secret);
    if (key && this.changes.live && generation === this.generation) {
      if (this.found.size >= MOST) this.found.clear();
      this.found.set(hash, { key, until: at + REMEMBER_MS });
    }
    return key;
  }

  forget(): void {
    this.generation += 1;
    this.found.clear();
  }

  close(): void {
    this.unsubscribe();
  }
}
