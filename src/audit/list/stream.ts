import type { FastifyReply, FastifyRequest } from 'fastify';
import { callerOf } from '../../access/caller.js';
import type { Context } from '../../context.js';
import { badParameter } from '../../http/errors.js';
import { IDLE_MARK, withIdleMarks, type StreamLimit } from '../../http/sse.js';
import { sleep } from '../../lib/sleep.js';
import type { EventFilter } from '../events/queries.js';
import { findSpan, readEndSeq, readLog, type StoredEntry } from '../log/log-queries.js';
import type { FilterQuery } from './filter.js';
import { readKnownFilter } from './known-event-types.js';
import { presentEvent } from './present.js';
import { encodePosition, parsePosition } from './stream-position.js';

const BATCH = 200;
/** Notifications are lost while their database connection is down, so the stream also polls. In milliseconds. */
const POLL_MS = 1_000;

/** Default position: the end of the log, or with `since` the first event that passes. Any process of the service accepts the `id`. */
export async function stream(
  ctx: Context,
  limit: StreamLimit,
  request: FastifyRequest,
  reply: FastifyReply,
  query: FilterQuery & { cursor?: string },
): Promise<AsyncIterable<string>> {
  const { orgId } = callerOf(request);
  const filter = await readKnownFilter(ctx.pool, orgId, query);
  const lastId = request.headers['last-event-id'] as string | undefined;
  const end = await readEndSeq(ctx.pool, orgId);
  const positionIn = (name: string, text: string | undefined) => {
    const position = parsePosition(ctx.cursors, orgId, name, text);
    // The log was replaced by a shorter one: the stream would skip entries.
    if (position !== undefined && position > end) {
      throw badParameter(name, `${name} is after the end of the log; leave it out to begin at the end`);
    }
    return position;
  };
  const afterSeq =
    positionIn('last-event-id', lastId) ??
    positionIn('cursor', query.cursor) ??
    (await defaultStart(ctx, orgId, filter, end));
  const signal = AbortSignal.any([limit.acquire(orgId, reply), ctx.stopping]);
  return render(ctx, { orgId, filter, afterSeq, signal });
}

async function defaultStart(
  { pool }: Context,
  orgId: string,
  { since }: EventFilter,
  end: number,
): Promise<number> {
  const span = since === undefined ? undefined : await findSpan(pool, orgId, { since, until: undefined });
  return span ? span.first - 1 : end;
}

interface Subscription {
  orgId: string;
  filter: EventFilter;
  afterSeq: number;
  signal: AbortSignal;
}

async function* render(ctx: Context, subscription: Subscription): AsyncIterable<string> {
  const { orgId, afterSeq, signal } = subscription;
  yield ': following\n\n';
  const scanned = { seq: afterSeq };
  let sent = afterSeq;
  const idOf = (seq: number) => `id: ${encodePosition(ctx.cursors, orgId, seq)}\n`;
  try {
    for await (const entry of withIdleMarks(
      follow(ctx, subscription, scanned),
      ctx.settings.logKeepAliveMs,
    )) {
      if (signal.aborted) return;
      if (entry !== IDLE_MARK) {
        sent = entry.seq;
        const data = JSON.stringify(presentEvent(entry.event!));
        yield `${idOf(sent)}event: ${oneLine(entry.event!.event_type)}\ndata: ${data}\n\n`;
      } else if (sent < scanned.seq) {
        // A client that reconnects need not scan the filtered entries again.
        sent = scanned.seq;
        yield `${idOf(sent)}\n`;
      } else {
        yield ': nothing new\n\n';
      }
    }
  } catch (error) {
    if (!signal.aborted) ctx.log.error({ err: error, orgId }, 'the stream of events failed');
  }
}

/** A line break, which imported event types may have, would end the field. */
function oneLine(text: string): string {
  return text.replaceAll(/[\r\n]/g, ' ');
}

/** The entries that pass the filter, as they are sealed. Updates `scanned` for every entry. */
async function* follow(
  ctx: Context,
  { orgId, filter, signal }: Subscription,
  scanned: { seq: number },
): AsyncIterable<StoredEntry> {
  let wake: () => void = () => undefined;
  const unsubscribe = ctx.changes.subscribe(orgId, () => wake(), 'log');
  try {
    while (!signal.aborted) {
      // Created before the read, so that no notification falls between the two.
      const woken = new Promise<void>((resolve) => (wake = resolve));
      const { entries, more } = await readLog(ctx.pool, orgId, { afterSeq: scanned.seq, filter }, BATCH);
      for (const entry of entries) {
        if (entry.event) yield entry;
        scanned.seq = entry.seq;
      }
      if (more) continue;
      const polled = new AbortController();
      await Promise.race([woken, sleep(POLL_MS, AbortSignal.any([signal, polled.signal]))]);
      polled.abort();
    }
  } finally {
    unsubscribe();
  }
}
