import { readLog, type StoredEntry } from '../audit/log/log-queries.js';
import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { addMillis } from '../lib/instant.js';
import { newId } from '../lib/uuid.js';
import { countPending, insertDeliveries } from './delivery-queries.js';
import { lockWebhookIfFree, setPosition, type WebhookRow } from './queries.js';

const BATCH = 500;
const MAX_UNTRIED = 100;
/** Beyond this, the events for a receiver that is down stay in the log only. */
const MAX_PENDING = 1_000;
/** The log is read only when there is room for this many, because each read fetches a whole batch. */
const MIN_ROOM = MAX_UNTRIED / 2;
/** Events from just before the webhook are sent too: the clock of the process that wrote them may be behind. */
const CLOCK_SKEW_MS = 60_000;

/** Inserts deliveries for the next entries of the log, and advances the position. True if the log may have more. */
export async function enqueueDeliveries(ctx: Context, orgId: string, id: string): Promise<boolean> {
  return inTransaction(ctx.pool, async (tx) => {
    const webhook = await lockWebhookIfFree(tx, orgId, id);
    if (webhook?.status !== 'active') return false;
    const { pending, untried } = await countPending(tx, orgId, id);
    const room = Math.min(MAX_UNTRIED - untried, MAX_PENDING - pending);
    if (room < MIN_ROOM) return false;
    const { entries, more } = await readLog(tx, orgId, { afterSeq: webhook.position }, BATCH);
    const wanted = entries.filter((entry) => isWanted(webhook, entry)).slice(0, room);
    const at = ctx.now();
    await insertDeliveries(
      tx,
      wanted.map(({ seq, event_id, event }) => ({
        org_id: orgId,
        webhook_id: id,
        id: newId(),
        event_id,
        event_type: event!.event_type,
        seq,
        created_at: at,
        expires_at: null,
      })),
    );
    // Entries that did not fit are read again later.
    const last = wanted.length === room ? wanted.at(-1) : entries.at(-1);
    if (last) await setPosition(tx, orgId, id, last.seq);
    return more && wanted.length < room;
  });
}

/** Skips dropped events, its own tests, and events from before the webhook: imports append old ones to the log. */
function isWanted({ id, event_types, created_at }: WebhookRow, { event }: StoredEntry): boolean {
  if (!event || event.occurred_at < addMillis(created_at, -CLOCK_SKEW_MS)) return false;
  if (event.event_type === 'webhook_tested' && event.resource_id === id) return false;
  return matches(event_types, event.event_type);
}

/** Types with a leading `!` are excluded. Without any other type, all others match. */
function matches(eventTypes: readonly string[], type: string): boolean {
  if (eventTypes.includes(`!${type}`)) return false;
  const included = eventTypes.filter((each) => !each.startsWith('!'));
  return included.length === 0 || included.includes(type);
}
