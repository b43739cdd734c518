import type { Pool } from '../../src/db/pool.js';
import { inTransaction } from '../../src/db/transaction.js';

/** Takes an organization's events away, as retention does, so that a test begins with none. */
export async function dropEvents(pool: Pool, orgId: string): Promise<void> {
  await inTransaction(pool, async (tx) => {
    await tx.query("select set_config('sandkeep.event_retention', 'on', true)");
    await tx.query('delete from events where org_id = $1', [orgId]);
    await tx.query('delete from unsealed_events where org_id = $1', [orgId]);
  });
}
