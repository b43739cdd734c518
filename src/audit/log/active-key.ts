import type pg from 'pg';
import type { Pool } from '../../db/pool.js';
import { inTransaction } from '../../db/transaction.js';
import type { Instant } from '../../lib/instant.js';
import type { EventKeys } from '../events/event-keys.js';
import { markEvents } from '../events/mark.js';
import { keepPublicKey, lockKeys, otherKeys } from './chain-queries.js';
import { checkKnown } from './check-end.js';

/**
 * Marks with these keys what is written through the pool from now on. Their first is noted in the database before: who seals and has
 * not got it would take what it marked for inserted, and stops when he sees it there. Throws BrokenLog when others are noted that are
 * not known here: then nothing is noted, and what marked before goes on.
 */
export async function useKeys(pool: pg.Pool, keys: EventKeys, at: Instant): Promise<void> {
  await noteKey(pool, keys, at);
  markEvents(pool, () => keys);
}

/** Notes the first of the keys, of which something is marked then. Throws BrokenLog. */
export async function noteKey(pool: Pool, keys: EventKeys, at: Instant): Promise<void> {
  const noted = await otherKeys(pool, []);
  if (noted.includes(keys.current.id)) return checkKnown(pool, keys);
  await inTransaction(pool, async (tx) => {
    // Of two processes that come with keys of their own one is the first.
    await lockKeys(tx);
    await checkKnown(tx, keys);
    await keepPublicKey(tx, keys.current, at);
  });
}
