import type { Sql } from './pool.js';
import { prepared } from './prepared.js';

/**
 * Every advisory lock of the service, with its purpose. docs/internals/locks.md has the order in which transactions
 * take them.
 *
 * The keys stay as they are: during an upgrade two releases share a database, and must exclude each other. The numbers
 * are four letters of ASCII. Texts are hashed to a number by the database. Two texts with the same hash only wait for
 * each other. `make_event_partition` (migration 0006) takes the text "event partitions". `usage_part` (migration 0011)
 * takes the pairs (0x75736167, 0) to (0x75736167, 31), which never equal a single number.
 */
export const ADVISORY_LOCKS = {
  /** One migrator at a time. Held by the session, because each migration has a transaction of its own. */
  migrations: 0x53616e64,
  /** One process at a time makes a scheduled backup. */
  scheduledBackup: 0x6261636b,
  /** One import at a time checks and loads: each sees all rows of the previous one, or none. */
  imports: 0x496d7072,
  /**
   * One process at a time registers its signing key: the second must see the key of the first, which may be another.
   */
  eventKeys: 'event keys',
  /** One placement of a runtime at a time, so that room of a worker is given once. */
  placement: (runtime: string) => `placement ${runtime}`,
  /** The reservations of an organization: shared far from a limit, exclusive near one. */
  quotas: (orgId: string) => `quotas ${orgId}`,
  /** One create at a time takes ports of the host, so that each is given once. */
  publishedPorts: 'published ports',
  /** One transaction at a time compacts the counts of an organization. */
  counts: (orgId: string) => `fold ${orgId}`,
} as const;

type Key = number | string;

/** The expression of a key as a parameter of the lock functions. */
function keyOf(key: Key): string {
  return typeof key === 'number' ? '$1::bigint' : 'hashtextextended($1, 0)';
}

/** Waits for the lock, and holds it until the transaction ends. */
export async function lockAdvisory(
  tx: Sql,
  key: Key,
  mode: 'exclusive' | 'shared' = 'exclusive',
): Promise<void> {
  const lock = mode === 'exclusive' ? 'pg_advisory_xact_lock' : 'pg_advisory_xact_lock_shared';
  await tx.query(prepared(`select ${lock}(${keyOf(key)})`, [key]));
}

/** Takes the lock until the transaction ends. Returns false when another transaction holds it. */
export async function tryAdvisory(tx: Sql, key: Key): Promise<boolean> {
  const { rows } = await tx.query<{ locked: boolean }>(
    `select pg_try_advisory_xact_lock(${keyOf(key)}) as locked`,
    [key],
  );
  return rows[0]!.locked;
}
