import { v7 as uuidv7 } from 'uuid';
import type { Context } from '../context.js';
import { addMillis } from '../lib/instant.js';
import { sleep } from '../lib/sleep.js';
import { startLoop } from '../lib/loop.js';
import { attempt } from './attempt.js';
import { claimDue, failExpired, forgetSettled, releaseClaim, type Claimed } from './delivery-queries.js';
import { follow } from './follow.js';
import { listActive, type WebhookRow } from './queries.js';
import { lookDelay } from './retry.js';

/** A notification can be lost, and retries come due: look at least this often, in milliseconds. */
const LOOK_EVERY_MS = 1_000;
/** Webhooks that this process serves at once, and what it sends to one of them at once. */
const MOST_AT_ONCE = 32;
const ABREAST = 4;
/** A claim outlasts any attempt by this, in milliseconds; then whoever had it counts as gone. */
const CLAIM_MARGIN_MS = 20_000;
/** What is under way when the service stops has so long to end, in milliseconds. */
const LAST_MS = 3_000;
const FORGET_BATCH = 1_000;

type Served = Pick<WebhookRow, 'org_id' | 'id' | 'failures'>;

/**
 * Sends to webhooks what the log of their organization has for them. Any number of processes do this together: a delivery is
 * claimed by one of them at a time. A receiver that is slow or down holds up no other.
 */
export function startWebhooks(ctx: Context): { stop(): Promise<void> } {
  const serving = new Map<string, Promise<void>>();
  const cut = new AbortController();
  const { log, settings } = ctx;

  async function serve({ org_id: orgId, id, failures }: Served, signal: AbortSignal): Promise<void> {
    // Of a receiver that was down, one delivery finds out whether it is back.
    let limit = lookDelay(failures) === undefined ? ABREAST : 1;
    while (!signal.aborted) {
      const more = await follow(ctx, orgId, id);
      const at = ctx.now();
      const until = addMillis(at, settings.webhooks.timeoutMs + CLAIM_MARGIN_MS);
      const claimed = await claimDue(ctx.pool, orgId, id, { at, until, claim: uuidv7() }, limit);
      if (claimed.length === 0) {
        if (more) continue;
        return;
      }
      const succeeded = await Promise.all(claimed.map(attemptOne));
      // Who does not answer waits until the next look, and who is down longer.
      if (!succeeded.includes(true)) return;
      limit = ABREAST;
    }
  }

  async function attemptOne(delivery: Claimed): Promise<boolean> {
    try {
      const settled = await attempt(ctx, delivery, cut.signal);
      return settled?.status === 'delivered';
    } catch (error) {
      // Else it would wait until the claim runs out.
      await releaseClaim(ctx.pool, delivery, ctx.now()).catch(() => undefined);
      if (!cut.signal.aborted) throw error;
      return false;
    }
  }

  const loop = startLoop(
    async (signal) => {
      for (const webhook of await listActive(ctx.pool, ctx.now())) {
        if (serving.size >= MOST_AT_ONCE) return;
        if (serving.has(webhook.id)) continue;
        const work = serve(webhook, signal)
          .catch((error: unknown) =>
            log.error({ err: error, webhookId: webhook.id }, 'serving a webhook failed'),
          )
          .finally(() => serving.delete(webhook.id));
        serving.set(webhook.id, work);
      }
    },
    {
      intervalMs: LOOK_EVERY_MS,
      onError: (error) => log.error({ err: error, loop: 'webhooks' }, 'a loop failed'),
    },
  );
  const unsubscribe = ctx.changes.subscribe(undefined, () => loop.wake(), 'log');

  return {
    async stop() {
      unsubscribe();
      await loop.stop();
      const ended = new AbortController();
      const patience = sleep(LAST_MS, ended.signal).then(() => cut.abort());
      await Promise.all(serving.values());
      ended.abort();
      await patience;
    },
  };
}

/** Gives up what nobody could send in time, and forgets what was settled long ago. */
export async function sweepDeliveries(ctx: Context, signal: AbortSignal): Promise<void> {
  const at = ctx.now();
  const { keepMs } = ctx.settings.webhooks;
  await failExpired(ctx.pool, at);
  while (!signal.aborted) {
    if ((await forgetSettled(ctx.pool, addMillis(at, -keepMs), FORGET_BATCH)) < FORGET_BATCH) return;
  }
}
