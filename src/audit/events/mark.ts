import pg from 'pg';
import { WriteBatch, type WriteTarget } from '../../db/write-batch.js';
import type { EventKeys } from './event-keys.js';

/**
 * Events bear a mark that only who has the event keys can make, so that one which somebody puts into the table is not taken for
 * one of ours. Writers everywhere get nothing but a transaction: its connection knows the keys.
 */
const KEYS = Symbol('event keys');
type Keys = EventKeys | undefined;
type Marking = { [KEYS]?: () => Keys | Promise<Keys> };

/** What is written through this pool from now on is marked. `keys`: undefined where there are none; then it is not. */
export function markEvents(pool: Pick<pg.Pool, 'on'>, keys: () => Keys | Promise<Keys>): void {
  const marking = pool as Marking;
  if (!marking[KEYS]) {
    pool.on('acquire', (client) => {
      (client as Marking)[KEYS] = () => marking[KEYS]?.();
    });
  }
  marking[KEYS] = keys;
}

/** The keys of who writes with `sql`, if he has any. Throws where nobody could tell: an event without its mark looks like a forged one. */
export async function keysOf(sql: WriteTarget): Promise<Keys> {
  const connection = sql instanceof WriteBatch ? sql.tx : sql;
  if (!(connection instanceof pg.Client || connection instanceof pg.Pool)) {
    throw new TypeError('events are written by a connection, within a transaction');
  }
  return (connection as Marking)[KEYS]?.();
}

/** The mark of an event that is written with `sql`; null where there are no keys. */
export async function markFor(sql: WriteTarget, leaf: Buffer): Promise<Buffer | null> {
  return (await keysOf(sql))?.mark(leaf) ?? null;
}
