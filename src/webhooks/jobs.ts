import { setMaxListeners } from 'node:events';
import type { Context } from '../context.js';
import { noConnection, SharedPool } from '../db/shared-pool.js';
import { Rotation } from '../fairness/rotation.js';
import { SlotQueue } from '../fairness/slot-queue.js';
import type { Release } from '../fairness/slots.js';
import { addMillis } from '../lib/instant.js';
import { startLoop } from '../lib/loop.js';
import { sleep } from '../lib/sleep.js';
import { newId } from '../lib/uuid.js';
import { attempt } from './attempt.js';
import { isOpen } from './circuit-breaker.js';
import {
  claimDue,
  deleteDeliveries,
  deleteSettled,
  failLostTests,
  releaseClaim,
  type Claimed,
} from './delivery-queries.js';
import { enqueueDeliveries } from './enqueue-deliveries.js';
import { deleteExpiredSecrets, listActive, listDeleted, removeDeleted, type WebhookRow } from './queries.js';

/** The longest interval between two polls: a notification can be lost, and retries become due without one. */
const POLL_INTERVAL_MS = 1_000;
/** The deliveries of one webhook that are sent at once. */
const CONCURRENT_DELIVERIES = 4;
/** How long a stop waits for running attempts, in milliseconds. */
const DRAIN_TIMEOUT_MS = 3_000;
const MOST_MS_OF_ROUND = 5;
const SETTLED_BATCH = 1_000;
const DELETE_BATCH = 2_000;

type Served = Pick<WebhookRow, 'org_id' | 'id' | 'failures'>;

/**
 * Sends the events of the log to webhooks. Any number of processes share the work, because a delivery is claimed by one
 * of them. A slow receiver delays no other: organizations have limited slots, and a webhook yields a slot it has had
 * for long while others wait.
 */
export function startWebhooks(ctx: Context): { stop(): Promise<void> } {
  /** Each has a slot. */
  const serving = new Map<string, Promise<void>>();
  /** As the latest pass found them. */
  const waiting = new Map<string, { webhook: Served; leave: AbortController }>();
  const { served, connections, yieldAfterMs, timeoutMs, claimMarginMs, keepTryingMs } = ctx.settings.webhooks;
  const places = new SlotQueue(served);
  const slots = new SlotQueue({ ...connections, refusal: noConnection });
  const contextFor = (orgId: string): Context => ({
    ...ctx,
    pool: new SharedPool(ctx.pool, slots, orgId, ctx.pool.eventMarker),
  });
  const mustYield = (begun: number) => places.waits > 0 && performance.now() - begun >= yieldAfterMs;
  const interrupt = new AbortController();
  // One listener for each running attempt.
  setMaxListeners(0, interrupt.signal);
  const { log } = ctx;

  /** Serves the webhook now, or when it has a slot. A webhook that is no longer active leaves the queue. */
  async function enter(webhook: Served, signal: AbortSignal): Promise<void> {
    const { id, org_id: orgId } = webhook;
    let release = places.tryAcquire(orgId);
    const place = { webhook, leave: new AbortController() };
    if (!release) {
      waiting.set(id, place);
      release = await places.acquire(orgId, place.leave.signal);
      waiting.delete(id);
    }
    if (release) serving.set(id, serveInSlot(place.webhook, release, signal));
  }

  async function serveInSlot(webhook: Served, release: Release, signal: AbortSignal): Promise<void> {
    let failed = false;
    try {
      await serve(webhook, signal);
    } catch (error) {
      failed = true;
      log.error({ err: error, webhookId: webhook.id }, 'serving a webhook failed');
    }
    serving.delete(webhook.id);
    // Before the release, which gives the slot to the one that waits.
    const othersWait = places.waits > 0;
    release();
    // A webhook that has yielded its slot waits again. After a failure, such as missing keys, the next poll is soon
    // enough.
    if (othersWait && !failed) loop.wake();
  }

  async function serve({ org_id: orgId, id, failures }: Served, signal: AbortSignal): Promise<void> {
    const own = contextFor(orgId);
    let isProbe = isOpen(failures);
    const begun = performance.now();
    while (!signal.aborted && !mustYield(begun)) {
      const roundBegun = performance.now();
      const more = await enqueueDeliveries(own, orgId, id);
      const at = ctx.now();
      const until = addMillis(at, timeoutMs + claimMarginMs);
      const claim = { at, until, claim: newId(), expiresAt: addMillis(at, keepTryingMs) };
      const which = { limit: isProbe ? 1 : CONCURRENT_DELIVERIES, leastTriedFirst: isProbe };
      const claimed = await claimDue(own.pool, orgId, id, claim, which);
      const millis = Math.min(performance.now() - roundBegun, MOST_MS_OF_ROUND);
      if (claimed.length === 0) {
        await ctx.pace.rest(orgId, millis, signal);
        if (more) continue;
        return;
      }
      // Waits for all, so that no attempt runs after the slot is released.
      const ended = await Promise.allSettled(claimed.map((delivery) => attemptOne(own, delivery)));
      await ctx.pace.rest(orgId, millis, signal);
      const thrown = ended.find((each) => each.status === 'rejected');
      if (thrown) throw thrown.reason;
      // A receiver that does not respond waits for the next poll.
      if (!ended.some((each) => each.status === 'fulfilled' && each.value)) return;
      isProbe = false;
    }
  }

  async function attemptOne(own: Context, delivery: Claimed): Promise<boolean> {
    try {
      const settled = await attempt(own, delivery, interrupt.signal);
      return settled !== undefined && (settled.status === 'delivered' || settled.refused);
    } catch (error) {
      // Otherwise the delivery would wait until its claim expires.
      await releaseClaim(own.pool, delivery, ctx.now()).catch(() => undefined);
      if (!interrupt.signal.aborted) throw error;
      return false;
    }
  }

  const loop = startLoop(
    async (signal) => {
      // Each slot rests on it between its rounds.
      setMaxListeners(0, signal);
      const active = await listActive(ctx.pool, ctx.now());
      const ids = new Set(active.map(({ id }) => id));
      for (const [id, { leave }] of waiting) if (!ids.has(id)) leave.abort();
      // Organizations take turns also at the slots that are free now.
      const entering = new Rotation<Served>();
      for (const webhook of active) {
        const place = waiting.get(webhook.id);
        if (place) place.webhook = webhook;
        else if (!serving.has(webhook.id)) entering.add(webhook.org_id, webhook);
      }
      for (let next = entering.take(); next; next = entering.take()) void enter(next, signal);
    },
    {
      intervalMs: POLL_INTERVAL_MS,
      onError: (error) => log.error({ err: error, loop: 'webhooks' }, 'a loop failed'),
    },
  );
  const unsubscribe = ctx.changes.subscribe(undefined, () => loop.wake(), 'log');

  return {
    async stop() {
      unsubscribe();
      await loop.stop();
      for (const { leave } of waiting.values()) leave.abort();
      const drained = new AbortController();
      const timeout = sleep(DRAIN_TIMEOUT_MS, drained.signal).then(() => interrupt.abort());
      await Promise.all(serving.values());
      drained.abort();
      await timeout;
    },
  };
}

/**
 * Fails tests of killed processes, and deletes expired secrets, old deliveries, and deleted webhooks with their
 * deliveries.
 */
export async function sweepDeliveries(ctx: Context, signal: AbortSignal): Promise<void> {
  const at = ctx.now();
  const { pool } = ctx;
  const { keepMs } = ctx.settings.webhooks;
  await failLostTests(pool, at);
  await deleteExpiredSecrets(pool, at);
  const inBatchesOf = async (size: number, deleteSome: (limit: number) => Promise<number>) => {
    while (!signal.aborted && (await deleteSome(size)) === size);
  };
  await inBatchesOf(SETTLED_BATCH, (limit) => deleteSettled(pool, addMillis(at, -keepMs), limit));
  for (const { org_id: orgId, id } of await listDeleted(pool)) {
    await inBatchesOf(DELETE_BATCH, (limit) => deleteDeliveries(pool, orgId, id, limit));
    await removeDeleted(pool, orgId, id);
  }
}
