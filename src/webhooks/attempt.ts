import type { EventContent } from '../audit/events/hash-chain.js';
import { getEvent } from '../audit/events/queries.js';
import { inTransaction, type Transaction } from '../db/transaction.js';
import { addMillis, shortInstant, type Instant } from '../lib/instant.js';
import { toStorable } from '../lib/storable-text.js';
import { VERSION } from '../lib/version.js';
import { post } from '../outbound/post.js';
import type { Keyring } from '../secrets/keyring.js';
import { recordOutcome, outcomeOf, type AttemptOutcome } from './circuit-breaker.js';
import {
  finishAttempt,
  lockDelivery,
  releaseClaim,
  type Claimed,
  type DeliveryRow,
} from './delivery-queries.js';
import { contentOf } from './formats.js';
import { getWebhook, type WebhookRow } from './queries.js';
import { readRetryAfter, retryDelay } from './retry.js';
import type { AttemptResponse } from './schema.js';
import { signingSecrets, signatures } from './secret.js';
import { endDeliverySpan, startDeliverySpan } from './trace-delivery.js';
import type { WebhookContext } from './webhook-context.js';

/** The longest stored error message: one about a certificate may list many names. */
const ERROR_LENGTH = 500;

interface Sent {
  outcome: AttemptOutcome;
  begun: Instant;
  result: AttemptResponse;
  retryAfterMs: number;
}

/**
 * Sends one delivery and stores the outcome. Undefined if the webhook was removed or disabled, or if another process
 * took the delivery over. Rejects if `signal` aborts. A test is sent to a disabled webhook too.
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
  // Not inside `send`, whose errors callers see: a fault of the keyring is for the operator.
  const keyring = ctx.keyring();
  const sent = event
    ? await send(ctx, keyring, { webhook, event, delivery }, signal)
    : failed('unsent', ctx.now(), 0, 'retention has dropped the event');
  signal?.throwIfAborted();
  return inTransaction(ctx.pool, (tx) => storeOutcome(ctx, tx, delivery, sent, event !== undefined));
}

async function send(
  ctx: WebhookContext,
  keyring: Keyring,
  { webhook, event, delivery }: { webhook: WebhookRow; event: EventContent; delivery: Claimed },
  signal: AbortSignal | undefined,
): Promise<Sent> {
  const at = ctx.now();
  const begun = performance.now();
  const spent = () => Math.round(performance.now() - begun);
  let secrets: string[];
  try {
    secrets = signingSecrets(keyring, webhook, at);
  } catch (error) {
    // A fault of our keys must not count against the receiver.
    return failed('unsent', at, 0, (error as Error).message);
  }
  const { type, body } = await contentOf(ctx.pool, webhook.format, event, delivery.seq);
  const timestamp = Math.floor(Date.parse(at) / 1000);
  const span = await startDeliverySpan(ctx, delivery, event);
  const headers = {
    'content-type': type,
    'user-agent': `Sandkeep/${VERSION}`,
    // The same in every attempt, so that a receiver can ignore duplicates.
    'webhook-id': event.id,
    'webhook-timestamp': String(timestamp),
    'webhook-signature': signatures(secrets, { id: event.id, timestamp, body }),
    ...(span ? { traceparent: span.traceparent } : {}),
  };
  try {
    const answer = await post(ctx.settings.webhooks, webhook.url, headers, body, signal);
    endDeliverySpan(span, answer.status);
    const answered = { response_status: answer.status, response_body: answer.body, error: null };
    return {
      outcome: outcomeOf(answer.status),
      begun: at,
      result: { at: shortInstant(at), duration_ms: spent(), ...answered },
      retryAfterMs: readRetryAfter(answer.retryAfter, Date.parse(ctx.now())),
    };
  } catch (error) {
    endDeliverySpan(span, undefined);
    return failed('failed', at, spent(), (error as Error).message);
  }
}

function failed(outcome: AttemptOutcome, at: Instant, duration_ms: number, message: string): Sent {
  const error = toStorable(message.slice(0, ERROR_LENGTH));
  const result = { at: shortInstant(at), duration_ms, response_status: null, response_body: null, error };
  return { outcome, begun: at, result, retryAfterMs: 0 };
}

async function storeOutcome(
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
  // A caller may have requested a redelivery meanwhile.
  const row = await lockDelivery(tx, orgId, webhookId, delivery.id);
  if (!row) return undefined;
  const expiresAt = row.expires_at ?? delivery.expires_at;
  if (!exists || at >= expiresAt) return finishAttempt(tx, delivery, result, settledAs('failed', at));
  const delay = retryDelay(row.attempts - row.tried_before, ctx.settings.webhooks.firstRetryMs);
  const next = addMillis(at, Math.max(delay, sent.retryAfterMs));
  return finishAttempt(tx, delivery, result, {
    status: 'pending',
    // The last attempt is made at expiry.
    dueAt: next < expiresAt ? next : expiresAt,
    settledAt: null,
    refused: outcome === 'refused',
  });
}

function settledAs(status: 'delivered' | 'failed', at: Instant): Parameters<typeof finishAttempt>[3] {
  return { status, dueAt: null, settledAt: at, refused: false };
}
