import { getEvent, type EventRow } from '../audit/events/queries.js';
import { presentEvent } from '../audit/list/present.js';
import { inTransaction, type Transaction } from '../db/transaction.js';
import { addMillis, shortInstant, type Instant } from '../lib/instant.js';
import { VERSION } from '../lib/version.js';
import { post, storable } from '../outbound/post.js';
import type { Keyring } from '../secrets/keyring.js';
import { recordOutcome, outcomeOf, type AttemptOutcome } from './circuit-breaker.js';
import {
  finishAttempt,
  lockDelivery,
  releaseClaim,
  type Claimed,
  type DeliveryRow,
} from './delivery-queries.js';
import { getWebhook, type WebhookRow } from './queries.js';
import { readRetryAfter, retryDelay } from './retry.js';
import type { AttemptResponse } from './schema.js';
import { openSecrets, signatures } from './secret.js';
import type { WebhookContext } from './webhook-context.js';

/** Of what went wrong so much is kept: a certificate can bring along any number of names. */
const ERROR_LENGTH = 500;

interface Sent {
  outcome: AttemptOutcome;
  begun: Instant;
  result: AttemptResponse;
  /** How long the receiver asks not to be sent it again, in milliseconds. */
  restMs: number;
}

/**
 * Sends one delivery and notes what came of it. Undefined when the webhook has gone or was disabled meanwhile, or somebody
 * else has the delivery; rejects when it was interrupted. A test is sent to a disabled one, too.
 */
export async function attempt(
  ctx: WebhookContext,
  delivery: Claimed,
  signal?: AbortSignal,
): Promise<DeliveryRow | undefined> {
  const { org_id: orgId, webhook_id: webhookId } = delivery;
  const webhook = await getWebhook(ctx.pool, orgId, webhookId);
  if (!webhook) return undefined;
  if (webhook.status === 'disabled' && delivery.seq !== null) {
    await releaseClaim(ctx.pool, delivery, ctx.now());
    return undefined;
  }
  const event = await getEvent(ctx.pool, orgId, delivery.event_id);
  // Outside of what is told to callers: what is wrong with the keys is for the operator.
  const keyring = ctx.keyring();
  const sent = event
    ? await send(ctx, keyring, { webhook, event, seq: delivery.seq }, signal)
    : failed('unsent', ctx.now(), 0, 'retention has dropped the event');
  signal?.throwIfAborted();
  return inTransaction(ctx.pool, (tx) => settle(ctx, tx, delivery, sent, event !== undefined));
}

async function send(
  ctx: WebhookContext,
  keyring: Keyring,
  { webhook, event, seq }: { webhook: WebhookRow; event: EventRow; seq: number | null },
  signal: AbortSignal | undefined,
): Promise<Sent> {
  const at = ctx.now();
  const begun = performance.now();
  const spent = () => Math.round(performance.now() - begun);
  let secrets: string[];
  try {
    secrets = openSecrets(keyring, webhook, at);
  } catch (error) {
    // What is wrong with our keys tells nothing of the receiver.
    return failed('unsent', at, 0, (error as Error).message);
  }
  const data = presentEvent(event);
  const body = JSON.stringify({ type: event.event_type, timestamp: data.timestamp, seq, data });
  const timestamp = Math.floor(Date.parse(at) / 1000);
  const headers = {
    'content-type': 'application/json; charset=utf-8',
    'user-agent': `Sandkeep/${VERSION}`,
    // The same whenever the event is sent, so that a receiver can tell what it has had already.
    'webhook-id': event.id,
    'webhook-timestamp': String(timestamp),
    'webhook-signature': signatures(secrets, { id: event.id, timestamp, body }),
  };
  try {
    const answer = await post(ctx.settings.webhooks, webhook.url, headers, body, signal);
    const answered = { response_status: answer.status, response_body: answer.body, error: null };
    return {
      ...{ outcome: outcomeOf(answer.status), begun: at },
      result: { at: shortInstant(at), duration_ms: spent(), ...answered },
      restMs: readRetryAfter(answer.retryAfter, Date.parse(ctx.now())),
    };
  } catch (error) {
    return failed('failed', at, spent(), (error as Error).message);
  }
}

function failed(outcome: AttemptOutcome, at: Instant, duration_ms: number, message: string): Sent {
  const error = storable(message.slice(0, ERROR_LENGTH));
  const result = { at: shortInstant(at), duration_ms, response_status: null, response_body: null, error };
  return { outcome, begun: at, result, restMs: 0 };
}

async function settle(
  ctx: WebhookContext,
  tx: Transaction,
  delivery: Claimed,
  sent: Sent,
  exists: boolean,
): Promise<DeliveryRow | undefined> {
  const { org_id: orgId, webhook_id: webhookId } = delivery;
  const { outcome, result } = sent;
  const at = ctx.now();
  await recordOutcome(ctx, tx, delivery, { ...sent, status: result.response_status }, at);
  if (outcome === 'delivered') return finishAttempt(tx, delivery, result, settledAs('delivered', at));
  // Somebody may have asked meanwhile for it to be sent again.
  const row = await lockDelivery(tx, orgId, webhookId, delivery.id);
  if (!row) return undefined;
  const expiresAt = row.expires_at ?? delivery.expires_at;
  if (!exists || at >= expiresAt) return finishAttempt(tx, delivery, result, settledAs('failed', at));
  const pause = retryDelay(row.attempts - row.tried_before, ctx.settings.webhooks.firstRetryMs);
  const next = addMillis(at, Math.max(pause, sent.restMs));
  return finishAttempt(tx, delivery, result, {
    status: 'pending',
    // The last attempt is made when it expires.
    dueAt: next < expiresAt ? next : expiresAt,
    settledAt: null,
    refused: outcome === 'refused',
  });
}

function settledAs(status: 'delivered' | 'failed', at: Instant): Parameters<typeof finishAttempt>[3] {
  return { status, dueAt: null, settledAt: at, refused: false };
}
