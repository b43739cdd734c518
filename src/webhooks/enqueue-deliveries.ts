import { v7 as uuidv7 } from 'uuid';
import { readLog, type StoredEntry } from '../audit/log/log-queries.js';
import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { addMillis } from '../lib/instant.js';
import { countPending, insertDeliveries } from './delivery-queries.js';
import { lockFreeWebhook, setPosition, type WebhookRow } from './queries.js';

/** Entries of the log that are looked at together. */
const BATCH = 500;
/** So many that were never tried, and the log waits. */
const MOST_FRESH = 100;
/** So many that are not settled, and the log waits: what a receiver that is down misses stays in the log. */
const MOST_PENDING = 1_000;
/** The log is looked at when there is room for so many: each look reads a batch of it. */
const LEAST_ROOM = MOST_FRESH / 2;
/** What came just before a webhook is for it, too: an event has the time of the process that wrote it, whose clock may be behind. */
const CLOCKS_APART_MS = 60_000;

/**
 * Makes deliveries of what is next in the log, as many as there is room for, and notes how far it has looked. True when there
 * may be more.
 */
export async function enqueueDeliveries(ctx: Context, orgId: string, id: string): Promise<boolean> {
  return inTransaction(ctx.pool, async (tx) => {
    const webhook = await lockFreeWebhook(tx, orgId, id);
    if (webhook?.status !== 'active') return false;
    const { pending, fresh } = await countPending(tx, orgId, id);
    const room = Math.min(MOST_FRESH - fresh, MOST_PENDING - pending);
    if (room < LEAST_ROOM) return false;
    const { entries, more } = await readLog(tx, orgId, { afterSeq: webhook.position }, BATCH);
    const wanted = entries.filter((entry) => isWanted(webhook, entry)).slice(0, room);
    const at = ctx.now();
    await insertDeliveries(
      tx,
      wanted.map(({ seq, event_id, event }) => ({
        org_id: orgId,
        webhook_id: id,
        id: uuidv7(),
        event_id,
        event_type: event!.event_type,
        seq,
        created_at: at,
        expires_at: null,
      })),
    );
    // What was left for want of room is looked at again.
    const last = wanted.length === room ? wanted.at(-1) : entries.at(-1);
    if (last) await setPosition(tx, orgId, id, last.seq);
    return more && wanted.length < room;
  });
}

/**
 * What was long before the webhook is not for it: it may come into the log later, as what is imported does. What retention
 * dropped cannot be sent, and a test has been sent already.
 */
function isWanted({ id, event_types, created_at }: WebhookRow, { event }: StoredEntry): boolean {
  if (!event || event.occurred_at < addMillis(created_at, -CLOCKS_APART_MS)) return false;
  if (event.event_type === 'webhook_tested' && event.resource_id === id) return false;
  return matches(event_types, event.event_type);
}

/** Any of the types that do not begin with `!` (when there are some), none of those that do. */
function matches(eventTypes: readonly string[], type: string): boolean {
  if (eventTypes.includes(`!${type}`)) return false;
  const included = eventTypes.filter((each) => !each.startsWith('!'));
  return included.length === 0 || included.includes(type);
}
