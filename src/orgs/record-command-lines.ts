import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { now } from '../lib/instant.js';
import { setCommandLines } from './queries.js';

/** Turns full command lines in the audit events of sessions on or off. */
export async function recordCommandLines(
  pool: Pool,
  orgId: string,
  on: boolean,
  actor: EventActor,
): Promise<{ before: boolean; after: boolean }> {
  return inTransaction(pool, async (tx) => {
    const change = { before: await setCommandLines(tx, orgId, on), after: on };
    if (change.before !== on) {
      const type = 'event_command_lines_changed';
      await recordEvent(tx, { orgId, type, actor, resourceId: null, at: now(), payload: change });
    }
    return change;
  });
}
