import { readLog, type StoredEntry } from '../../src/audit/log/log-queries.js';
import type { Pool } from '../../src/db/pool.js';
import { inTransaction } from '../../src/db/transaction.js';
import { until } from './polling.js';

/** Removes an organization's events, so that a test starts with none. */
export async function dropEvents(pool: Pool, orgId: string): Promise<void> {
  await inTransaction(pool, async (tx) => {
    await tx.query("select set_config('sandkeep.event_retention', 'on', true)");
    await tx.query('delete from events where org_id = $1', [orgId]);
    await tx.query('delete from unsealed_events where org_id = $1', [orgId]);
  });
}

/** Waits until all committed events are sealed. */
export async function untilSealed(pool: Pool, orgId: string, millis?: number): Promise<void> {
  await until(
    async () => {
      const { rows } = await pool.query<{ count: number }>(
        'select count(*) from unsealed_events where org_id = $1',
        [orgId],
      );
      return rows[0]!.count;
    },
    (count) => count === 0,
    millis,
  );
}

export async function wholeLog(pool: Pool, orgId: string, page = 500): Promise<StoredEntry[]> {
  const all: StoredEntry[] = [];
  for (;;) {
    const { entries, more } = await readLog(pool, orgId, { afterSeq: all.at(-1)?.seq ?? 0 }, page);
    all.push(...entries);
    if (!more) return all;
  }
}

/** Runs statements as an attacker with full rights, whom no trigger stops. */
export async function tamper(pool: Pool, ...statements: readonly string[]): Promise<void> {
  await inTransaction(pool, async (tx) => {
    await tx.query('set local session_replication_role = replica');
    for (const statement of statements) await tx.query(statement);
  });
}
