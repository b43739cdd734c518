import { WEBHOOKS } from '../audit/events/actor.js';
import { recordEvent } from '../audit/events/record.js';
import type { Transaction } from '../db/transaction.js';
import { addMillis, shortInstant, type Instant } from '../lib/instant.js';
import type { Claimed } from './delivery-queries.js';
import { originOf } from './present.js';
import { closeCircuit, countFailure, disableWebhook, setResume, type WebhookRow } from './queries.js';
import type { WebhookContext } from './webhook-context.js';

/** The circuit opens after this many deliveries in a row whose first attempt failed. */
const OPEN_AFTER = 5;
const FIRST_PROBE_MS = 10_000;
const LONGEST_PROBE_MS = 15 * 60 * 1000;
const GONE = 410;
/** Refusals that do not depend on the event: the address is wrong, or the receiver is overloaded. */
const RECEIVER_FAULTS = new Set([401, 403, 404, 405, 408, 429]);
/** With these statuses, `Retry-After` applies to all deliveries of the webhook. */
const RETRY_AFTER_STATUSES = new Set([429, 503]);

/** `refused` is about the event, `failed` about the receiver. An `unsent` attempt never left the service. */
export type AttemptOutcome = 'delivered' | 'refused' | 'failed' | 'gone' | 'unsent';

export function outcomeOf(status: number): AttemptOutcome {
  if (status >= 200 && status < 300) return 'delivered';
  if (status === GONE) return 'gone';
  return status >= 400 && status < 500 && !RECEIVER_FAULTS.has(status) ? 'refused' : 'failed';
}

/** While the circuit is open, only one delivery at a time is sent, as a probe. */
export function isOpen(failures: number): boolean {
  return failures >= OPEN_AFTER;
}

/** The delay until the next probe, in milliseconds; 0 while the circuit is closed. */
export function probeDelay(failures: number): number {
  return isOpen(failures) ? Math.min(FIRST_PROBE_MS * 2 ** (failures - OPEN_AFTER), LONGEST_PROBE_MS) : 0;
}

/**
 * Updates the circuit. Attempts that began before the last delay ended do not count. While the circuit is closed, only
 * the first attempt of a delivery counts: an event that the receiver cannot process fails every time. A successful test
 * closes the circuit, a failed one changes nothing.
 */
export async function recordOutcome(
  ctx: Pick<WebhookContext, 'settings'>,
  tx: Transaction,
  { org_id: orgId, webhook_id: id, seq, attempts, tried_before }: Claimed,
  sent: { outcome: AttemptOutcome; status: number | null; begun: Instant; retryAfterMs: number },
  at: Instant,
): Promise<void> {
  const { outcome, status, begun } = sent;
  if (seq === null) {
    if (outcome === 'delivered') await closeCircuit(tx, orgId, id, null);
    return;
  }
  if (outcome === 'unsent') return;
  if (outcome === 'delivered' || outcome === 'refused') return closeCircuit(tx, orgId, id, begun);
  const isFirst = attempts - tried_before === 1;
  const counted = await countFailure(tx, orgId, id, { at, begun, isFirst, openAfter: OPEN_AFTER });
  if (outcome === 'gone') return disable(tx, orgId, id, 'gone', at);
  if (counted && addMillis(counted.failing_since, ctx.settings.webhooks.disableAfterMs) <= at) {
    return disable(tx, orgId, id, 'failing', at);
  }
  const retryAfter = status !== null && RETRY_AFTER_STATUSES.has(status) ? sent.retryAfterMs : 0;
  const delay = Math.max(retryAfter, counted ? probeDelay(counted.failures) : 0);
  if (delay > 0) await setResume(tx, orgId, id, addMillis(at, delay));
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
