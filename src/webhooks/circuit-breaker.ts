import { WEBHOOKS } from '../audit/events/actor.js';
import { recordEvent } from '../audit/events/record.js';
import type { Transaction } from '../db/transaction.js';
import { addMillis, shortInstant, type Instant } from '../lib/instant.js';
import type { Claimed } from './delivery-queries.js';
import { originOf } from './present.js';
import { countFailure, disableWebhook, noteAnswer, setResume, type WebhookRow } from './queries.js';
import type { WebhookContext } from './webhook-context.js';

/** So many deliveries in a row whose first attempt failed, and the receiver is taken to be down. */
const DOWN_AFTER = 5;
/** Between two looks at a receiver that is down, in milliseconds: at first, and at most. */
const FIRST_LOOK_MS = 10_000;
const LONGEST_LOOK_MS = 15 * 60 * 1000;
/** The receiver is not there any more, and says so. */
const GONE = 410;
/** Of the answers that refuse, those that would be the same for any event: the address is wrong, or it is too much just now. */
const ABOUT_THE_RECEIVER = new Set([401, 403, 404, 405, 408, 429]);
/** With `Retry-After` these ask for a rest from everything. */
const ASK_FOR_REST = new Set([429, 503]);

/** What came of an attempt. `refused` is about this event, `failed` about the receiver, `unsent` about neither. */
export type AttemptOutcome = 'delivered' | 'refused' | 'failed' | 'gone' | 'unsent';

export function outcomeOf(status: number): AttemptOutcome {
  if (status >= 200 && status < 300) return 'delivered';
  if (status === GONE) return 'gone';
  return status >= 400 && status < 500 && !ABOUT_THE_RECEIVER.has(status) ? 'refused' : 'failed';
}

/** Whether a receiver with so many failures is down: then one delivery at a time finds out whether it is back. */
export function isDown(failures: number): boolean {
  return failures >= DOWN_AFTER;
}

/**
 * How long nothing is sent to a receiver that is down, in milliseconds; 0 while it is not. A thousand deliveries that wait for
 * their next attempt do not all have to run into the same wall.
 */
export function probeDelay(failures: number): number {
  return isDown(failures) ? Math.min(FIRST_LOOK_MS * 2 ** (failures - DOWN_AFTER), LONGEST_LOOK_MS) : 0;
}

/**
 * Notes what an attempt tells of the receiver. Only one that began after the last rest was over tells anything: what was under
 * way with others when the rest began is what it began for. Of a delivery only the first attempt counts, while the receiver is
 * not down: an event that it cannot cope with fails every time. A test tells nothing, but that all is well again.
 */
export async function recordOutcome(
  ctx: Pick<WebhookContext, 'settings'>,
  tx: Transaction,
  { org_id: orgId, webhook_id: id, seq, attempts, tried_before }: Claimed,
  sent: { outcome: AttemptOutcome; status: number | null; begun: Instant; restMs: number },
  at: Instant,
): Promise<void> {
  const { outcome, status, begun } = sent;
  if (seq === null) {
    if (outcome === 'delivered') await noteAnswer(tx, orgId, id, null);
    return;
  }
  if (outcome === 'unsent') return;
  if (outcome === 'delivered' || outcome === 'refused') return noteAnswer(tx, orgId, id, begun);
  const isFirst = attempts - tried_before === 1;
  const counted = await countFailure(tx, orgId, id, { at, begun, isFirst, downAfter: DOWN_AFTER });
  if (outcome === 'gone') return disable(tx, orgId, id, 'gone', at);
  if (counted && addMillis(counted.failing_since, ctx.settings.webhooks.disableAfterMs) <= at) {
    return disable(tx, orgId, id, 'failing', at);
  }
  const asked = status !== null && ASK_FOR_REST.has(status) ? sent.restMs : 0;
  const rest = Math.max(asked, counted ? probeDelay(counted.failures) : 0);
  if (rest > 0) await setResume(tx, orgId, id, addMillis(at, rest));
}

async function disable(
  tx: Transaction,
  orgId: string,
  id: string,
  reason: NonNullable<WebhookRow['disabled_reason']>,
  at: Instant,
): Promise<void> {
  const disabled = await disableWebhook(tx, orgId, id, reason, at);
  if (!disabled) return;
  const { url, failures, failing_since } = disabled;
  await recordEvent(tx, {
    orgId,
    type: 'webhook_disabled',
    actor: WEBHOOKS,
    resourceId: id,
    at,
    payload: {
      webhook_id: id,
      destination: originOf(url),
      reason,
      failing_since: shortInstant(failing_since ?? at),
      failures,
    },
  });
}
