import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { now } from '../lib/instant.js';
import { setNetworkRecord } from './queries.js';

/** Turns the record of the network of all sandboxes of an organization on or off. */
export async function recordNetwork(
  pool: Pool,
  orgId: string,
  on: boolean,
  actor: EventActor,
): Promise<{ before: boolean; after: boolean }> {
  return inTransaction(pool, async (tx) => {
    const change = { before: await setNetworkRecord(tx, orgId, on), after: on };
    if (change.before !== on) {
      const type = 'network_record_changed';
      await recordEvent(tx, { orgId, type, actor, resourceId: null, at: now(), payload: change });
    }
    return change;
  });
}
