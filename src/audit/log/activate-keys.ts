import type { Pool } from '../../db/pool.js';
import { inTransaction } from '../../db/transaction.js';
import type { Instant } from '../../lib/instant.js';
import type { EventKeys } from '../events/event-keys.js';
import { ExplainedError } from '../../lib/explained-error.js';
import { insertPublicKey, lockKeys, registeredKeyIds } from './key-queries.js';
import type { SealContext } from './seal-context.js';
import { findEventKeys, type EventKeySource } from './signing-key.js';
import { requireKnownKeys } from './verify-head.js';

/** Throws ExplainedError when the keys of the log are missing: a new file would be in the place of the right one. */
export async function requireKeyFile(pool: Pool, source: EventKeySource): Promise<void> {
  if (!('file' in source) || findEventKeys(source)) return;
  const ids = await registeredKeyIds(pool);
  if (ids.length === 0) return;
  throw new ExplainedError(
    `${source.file} is missing, and the event log is signed by the key ${ids.at(-1)!}: put it back from a backup, or copy that of another process; if it is lost, run "sandkeep events key --lost" (docs/backups.md)`,
  );
}

/** Throws BrokenLog when `event_keys` has an unknown key; the process then keeps marking with its previous key. */
export async function activateKeys(
  { pool, activeKeys }: Pick<SealContext, 'pool' | 'activeKeys'>,
  keys: EventKeys,
  at: Instant,
): Promise<void> {
  await registerKey(pool, keys, at);
  activeKeys.activate(keys);
}

/**
 * Inserts the current key into `event_keys`: a sealer takes events marked with any other key for forged. Throws
 * BrokenLog.
 */
export async function registerKey(pool: Pool, keys: EventKeys, at: Instant): Promise<void> {
  if ((await registeredKeyIds(pool)).includes(keys.current.id)) return requireKnownKeys(pool, keys);
  await inTransaction(pool, async (tx) => {
    // Two processes may start with different keys: the second one must see the key of the first.
    await lockKeys(tx);
    await requireKnownKeys(tx, keys);
    await insertPublicKey(tx, keys.current, at);
  });
}
