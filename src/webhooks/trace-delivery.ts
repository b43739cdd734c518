import { traceOfEvent } from '../audit/events/trace-queries.js';
import type { EventContent } from '../audit/events/hash-chain.js';
import type { Span } from '../lib/tracing.js';
import type { Claimed } from './delivery-queries.js';
import type { WebhookContext } from './webhook-context.js';

/** The span of an attempt, in the trace of the request that caused the event. A missing trace delays no delivery. */
export async function startDeliverySpan(
  { tracing, pool, span }: WebhookContext,
  { org_id: orgId, webhook_id: webhookId, attempts, event_type: type }: Claimed,
  event: EventContent,
): Promise<Span | undefined> {
  if (!tracing) return undefined;
  const parent = span?.context ?? (await traceOfEvent(pool, orgId, event).catch(() => undefined));
  const attributes = {
    'http.request.method': 'POST',
    'sandkeep.webhook_id': webhookId,
    'sandkeep.event_id': event.id,
    'sandkeep.event_type': type,
    ...(attempts > 0 ? { 'http.request.resend_count': attempts } : {}),
  };
  return tracing.start('POST', 'client', attributes, parent);
}

/** `status`: undefined without an answer. */
export function endDeliverySpan(span: Span | undefined, status: number | undefined): void {
  if (!span) return;
  if (status !== undefined) span.set({ 'http.response.status_code': status });
  if (status === undefined) span.end('no_answer');
  else span.end(status >= 400 ? String(status) : null);
}
