import type { Pool, Sql } from '../db/pool.js';
import type { EventKeys } from './signing-key.js';

/**
 * Events bear a mark that only who has the event keys can make, so that one which somebody puts into the table is not taken for
 * one of ours. Writers everywhere get nothing but a transaction: its connection knows the keys.
 */
const KEYS = Symbol('event keys');
type Keys = EventKeys | undefined;
type Marking = { [KEYS]?: () => Keys | Promise<Keys> };

/** What is written through this pool from now on is marked. `keys`: undefined where there are none; then it is not. */
export function markEvents(pool: Pool, keys: () => Keys | Promise<Keys>): void {
  const marking = pool as Marking;
  if (!marking[KEYS]) {
    pool.on('acquire', (client) => {
      (client as Marking)[KEYS] = () => marking[KEYS]?.();
    });
  }
  marking[KEYS] = keys;
}

/** The keys of who writes with `sql`, if he has any. */
export async function keysOf(sql: Sql): Promise<Keys> {
  return (sql as Marking)[KEYS]?.();
}

/** The mark of an event that is written with `sql`; null where there are no keys. */
export async function markFor(sql: Sql, leaf: Buffer): Promise<Buffer | null> {
  return (await keysOf(sql))?.mark(leaf) ?? null;
}
