import type { Pool, Sql } from '../db/pool.js';
import type { EventKeys } from './signing-key.js';

/**
 * Events bear a mark that only who has the event keys can make, so that one which somebody puts into the table is not taken for
 * one of ours. Writers everywhere get nothing but a transaction: its connection knows the keys.
 */
const KEYS = Symbol('event keys');
type Marking = { [KEYS]?: () => EventKeys | undefined };

/** What is written through this pool from now on is marked. `keys`: undefined where there are none; then it is not. */
export function markEvents(pool: Pool, keys: () => EventKeys | undefined): void {
  (pool as Marking)[KEYS] = keys;
  pool.on('acquire', (client) => {
    (client as Marking)[KEYS] = keys;
  });
}

/** The keys of who writes with `sql`, if he has any. */
export function keysOf(sql: Sql): EventKeys | undefined {
  return (sql as Marking)[KEYS]?.();
}

/** The mark of an event that is written with `sql`; null where there are no keys. */
export function markFor(sql: Sql, leaf: Buffer): Buffer | null {
  return keysOf(sql)?.mark(leaf) ?? null;
}
