import { setMaxListeners } from 'node:events';
import { v7 as uuidv7 } from 'uuid';
import type { Context } from '../context.js';
import { addMillis } from '../lib/instant.js';
import { sleep } from '../lib/sleep.js';
import { startLoop } from '../lib/loop.js';
import { makePlaces } from '../lib/places.js';
import { attempt } from './attempt.js';
import { claimDue, failLostTests, forgetSettled, releaseClaim, type Claimed } from './delivery-queries.js';
import { follow } from './follow.js';
import { forgetOldSecrets, listActive, type WebhookRow } from './queries.js';
import { lookDelay } from './retry.js';

/** A notification can be lost, and retries come due: look at least this often, in milliseconds. */
const LOOK_EVERY_MS = 1_000;
/** What is sent to a webhook at once. */
const ABREAST = 4;
/** What is under way when the service stops has so long to end, in milliseconds. */
const LAST_MS = 3_000;
const FORGET_BATCH = 1_000;

type Served = Pick<WebhookRow, 'org_id' | 'id' | 'failures'>;

/**
 * Sends to webhooks what the log of their organization has for them. Any number of processes do this together: a delivery is
 * claimed by one of them at a time. A receiver that is slow or down holds up no other: an organization has some of the places
 * only, and whoever has one for long gives it up while others wait, of whom the one that was served longest ago goes first.
 */
export function startWebhooks(ctx: Context): { stop(): Promise<void> } {
  const serving = new Map<string, Promise<void>>();
  const { served, turnMs, timeoutMs, claimMarginMs, keepTryingMs } = ctx.settings.webhooks;
  const places = makePlaces(served);
  let waiting = false;
  const givesWay = (begun: number) => waiting && performance.now() - begun >= turnMs;
  /** The turn in which a webhook that still had something to do was last served. */
  const servedIn = new Map<string, number>();
  let turns = 0;
  const cut = new AbortController();
  // Everything that is under way listens, and leaves when it is done.
  setMaxListeners(0, cut.signal);
  const { log } = ctx;

  async function serve({ org_id: orgId, id, failures }: Served, signal: AbortSignal): Promise<void> {
    // Of a receiver that was down, one delivery finds out whether it is back.
    let limit = lookDelay(failures) === undefined ? ABREAST : 1;
    const begun = performance.now();
    while (!signal.aborted && !givesWay(begun)) {
      const more = await follow(ctx, orgId, id);
      const at = ctx.now();
      const until = addMillis(at, timeoutMs + claimMarginMs);
      const claim = { at, until, claim: uuidv7(), expiresAt: addMillis(at, keepTryingMs) };
      const claimed = await claimDue(ctx.pool, orgId, id, claim, limit);
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
      const active = (await listActive(ctx.pool, ctx.now())).filter(({ id }) => !serving.has(id));
      const turnOf = ({ id }: Served) => servedIn.get(id) ?? 0;
      const inTurn = active.map((each) => [turnOf(each), each] as const).toSorted(([a], [b]) => a - b);
      const listed = new Set(active.map(({ id }) => id));
      for (const id of servedIn.keys()) if (!listed.has(id) && !serving.has(id)) servedIn.delete(id);
      let leftOut = false;
      for (const [, webhook] of inTurn) {
        const leave = places.take(webhook.org_id);
        if (!leave) {
          leftOut = true;
          continue;
        }
        servedIn.set(webhook.id, (turns += 1));
        const work = serve(webhook, signal)
          .catch((error: unknown) =>
            log.error({ err: error, webhookId: webhook.id }, 'serving a webhook failed'),
          )
          .finally(() => {
            serving.delete(webhook.id);
            leave();
          });
        serving.set(webhook.id, work);
      }
      waiting = leftOut;
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

/** Gives up tests whose process was killed, and forgets secrets that have ended and what was settled long ago. */
export async function sweepDeliveries(ctx: Context, signal: AbortSignal): Promise<void> {
  const at = ctx.now();
  const { keepMs } = ctx.settings.webhooks;
  await failLostTests(ctx.pool, at);
  await forgetOldSecrets(ctx.pool, at);
  while (!signal.aborted) {
    if ((await forgetSettled(ctx.pool, addMillis(at, -keepMs), FORGET_BATCH)) < FORGET_BATCH) return;
  }
}
