import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { now } from '../lib/instant.js';
import { setSwitch, type OrgSwitch } from './queries.js';

const EVENTS = {
  command_lines: 'event_command_lines_changed',
  network_record: 'network_record_changed',
} as const satisfies Record<OrgSwitch, string>;

/**
 * Turns one of these on or off for an organization: full command lines in the audit events of sessions, or the record
 * of the network of all sandboxes.
 */
export async function turnSwitch(
  pool: Pool,
  orgId: string,
  { name, on }: { name: OrgSwitch; on: boolean },
  actor: EventActor,
): Promise<{ before: boolean; after: boolean }> {
  return inTransaction(pool, async (tx) => {
    const change = { before: await setSwitch(tx, orgId, name, on), after: on };
    if (change.before !== on) {
      const type = EVENTS[name];
      await recordEvent(tx, { orgId, type, actor, resourceId: null, at: now(), payload: change });
    }
    return change;
  });
}
