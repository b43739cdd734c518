import { setMaxListeners } from 'node:events';
import { v7 as uuidv7 } from 'uuid';
import type { Context } from '../context.js';
import { makeConcurrencyLimit } from '../lib/concurrency-limit.js';
import { addMillis } from '../lib/instant.js';
import { startLoop } from '../lib/loop.js';
import { sleep } from '../lib/sleep.js';
import { attempt } from './attempt.js';
import { isDown } from './circuit-breaker.js';
import {
  claimDue,
  deleteDeliveries,
  failLostTests,
  forgetSettled,
  releaseClaim,
  type Claimed,
} from './delivery-queries.js';
import { enqueueDeliveries } from './enqueue-deliveries.js';
import { forgetOldSecrets, listActive, listDeleted, removeDeleted, type WebhookRow } from './queries.js';
import { RoundRobin } from './round-robin.js';

/** A notification can be lost, and retries come due: look at least this often, in milliseconds. */
const LOOK_EVERY_MS = 1_000;
/** What is sent to a webhook at once. */
const ABREAST = 4;
/** What is under way when the service stops has so long to end, in milliseconds. */
const LAST_MS = 3_000;
const FORGET_BATCH = 1_000;
const DELETE_BATCH = 2_000;

type Served = Pick<WebhookRow, 'org_id' | 'id' | 'failures'>;

/**
 * Sends to webhooks what the log of their organization has for them. Any number of processes do this together: a delivery is
 * claimed by one of them at a time. A receiver that is slow or down holds up no other: an organization has some of the places
 * only, and whoever has one for long gives it up while others wait.
 */
export function startWebhooks(ctx: Context): { stop(): Promise<void> } {
  const serving = new Map<string, { webhook: Served; work: Promise<void> }>();
  const { served, turnMs, timeoutMs, claimMarginMs, keepTryingMs } = ctx.settings.webhooks;
  const limit = makeConcurrencyLimit(served);
  let waiting = false;
  const givesWay = (begun: number) => waiting && performance.now() - begun >= turnMs;
  const roundRobin = new RoundRobin();
  const cut = new AbortController();
  // Everything that is under way listens, and leaves when it is done.
  setMaxListeners(0, cut.signal);
  const { log } = ctx;

  async function occupy(webhook: Served, leave: () => void, signal: AbortSignal): Promise<void> {
    let broken = false;
    try {
      await serve(webhook, signal);
    } catch (error) {
      broken = true;
      log.error({ err: error, webhookId: webhook.id }, 'serving a webhook failed');
    }
    serving.delete(webhook.id);
    leave();
    // What cannot be served at all, as without keys, is not tried again and again because others wait.
    if (waiting && !broken) loop.wake();
  }

  async function serve({ org_id: orgId, id, failures }: Served, signal: AbortSignal): Promise<void> {
    let down = isDown(failures);
    const begun = performance.now();
    while (!signal.aborted && !givesWay(begun)) {
      const more = await enqueueDeliveries(ctx, orgId, id);
      const at = ctx.now();
      const until = addMillis(at, timeoutMs + claimMarginMs);
      const claim = { at, until, claim: uuidv7(), expiresAt: addMillis(at, keepTryingMs) };
      // Of a receiver that was down, one delivery finds out whether it is back.
      const which = { limit: down ? 1 : ABREAST, rarest: down };
      const claimed = await claimDue(ctx.pool, orgId, id, claim, which);
      if (claimed.length === 0) {
        if (more) continue;
        return;
      }
      // All of them, so that none is under way when somebody else comes here.
      const ended = await Promise.allSettled(claimed.map(attemptOne));
      const thrown = ended.find((each) => each.status === 'rejected');
      if (thrown) throw thrown.reason;
      // Who does not answer waits until the next look, and who is down longer.
      if (!ended.some((each) => each.status === 'fulfilled' && each.value)) return;
      down = false;
    }
  }

  /** Whether the receiver is there. */
  async function attemptOne(delivery: Claimed): Promise<boolean> {
    try {
      const settled = await attempt(ctx, delivery, cut.signal);
      return settled !== undefined && (settled.status === 'delivered' || settled.refused);
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
      const served = [...serving.values()].map(({ webhook }) => webhook);
      let leftOut = false;
      for (const webhook of roundRobin.order(active, served)) {
        const leave = limit.acquire(webhook.org_id);
        if (!leave) {
          leftOut = true;
          continue;
        }
        roundRobin.recordServed(webhook);
        const work = occupy(webhook, leave, signal);
        serving.set(webhook.id, { webhook, work });
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
      await Promise.all([...serving.values()].map(({ work }) => work));
      ended.abort();
      await patience;
    },
  };
}

/**
 * Gives up tests whose process was killed; forgets secrets that have ended, what was settled long ago, and webhooks that were
 * deleted, with their deliveries.
 */
export async function sweepDeliveries(ctx: Context, signal: AbortSignal): Promise<void> {
  const at = ctx.now();
  const { pool } = ctx;
  const { keepMs } = ctx.settings.webhooks;
  await failLostTests(pool, at);
  await forgetOldSecrets(pool, at);
  const many = async (batch: number, forget: (limit: number) => Promise<number>) => {
    while (!signal.aborted && (await forget(batch)) === batch);
  };
  await many(FORGET_BATCH, (limit) => forgetSettled(pool, addMillis(at, -keepMs), limit));
  for (const { org_id: orgId, id } of await listDeleted(pool)) {
    await many(DELETE_BATCH, (limit) => deleteDeliveries(pool, orgId, id, limit));
    await removeDeleted(pool, orgId, id);
  }
}
