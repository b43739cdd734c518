import { inTransaction } from '../../db/transaction.js';
import { ExplainedError } from '../../lib/explained-error.js';
import { now } from '../../lib/instant.js';
import { recordEvent } from '../events/record.js';
import type { EventActor } from '../events/schema.js';
import { lockHead } from '../log/chain-queries.js';
import { getRetention, updateRetention } from '../log/retention-queries.js';
import { isRetentionTrusted, signRetention } from '../log/retention-signature.js';
import type { SealContext } from '../log/seal-context.js';

/**
 * `months`: whole months after that of the event; null: for ever. Throws ExplainedError without event keys, which sign
 * the number.
 */
export async function setRetention(
  { pool, activeKeys }: Pick<SealContext, 'pool' | 'activeKeys'>,
  orgId: string,
  months: number | null,
  actor: EventActor,
): Promise<{ before_months: number | null; after_months: number | null }> {
  return inTransaction(pool, async (tx) => {
    const head = (await lockHead(tx, orgId, { wait: true }))!;
    const change = { before_months: head.retention_months, after_months: months };
    if (months === null && change.before_months === null) return change;
    const keys = await activeKeys.get();
    if (!keys) {
      throw new ExplainedError(
        'the retention of events is signed with the event keys of the service, which are missing: name them with --event-keys-file or SANDKEEP_EVENT_KEYS',
      );
    }
    // An equal number without a valid signature is signed too.
    const retention = await getRetention(tx, orgId);
    if (change.before_months === months && retention && isRetentionTrusted(retention, keys.known)) {
      return change;
    }
    await updateRetention(tx, signRetention(keys, orgId, months, now()));
    await recordEvent(tx, {
      orgId,
      type: 'event_retention_changed',
      actor,
      resourceId: null,
      at: now(),
      payload: change,
    });
    return change;
  });
}
