import type { FastifyReply, FastifyRequest } from 'fastify';
import { callerOf } from '../../access/caller.js';
import type { Context } from '../../context.js';
import { badParameter } from '../../http/errors.js';
import { QUIET, quietly, type Places } from '../../http/sse.js';
import { sleep } from '../../lib/sleep.js';
import type { EventFilter } from '../events/queries.js';
import { findSpan, readEndSeq, readLogStream, type LogEntry } from '../log/read.js';
import type { FilterQuery } from './filter.js';
import { readKnownFilter } from './known-filter.js';
import { presentEvent } from './present.js';
import { encodePlace, readPlace } from './stream-position.js';

const BATCH = 200;
/** A notification can be lost while the database connection is down: look at least this often, in milliseconds. */
const LOOK_EVERY_MS = 1_000;

/**
 * The log of the caller's organization from a place on, as server-sent events. Without a place it begins now; with `since` at
 * the first event that passes. It ends when the service stops or the client leaves; what has been seen is in the `id`, by which
 * any process goes on.
 */
export async function stream(
  ctx: Context,
  places: Places,
  request: FastifyRequest,
  reply: FastifyReply,
  query: FilterQuery & { cursor?: string },
): Promise<AsyncIterable<string>> {
  const { orgId } = callerOf(request);
  const filter = await readKnownFilter(ctx.pool, orgId, query);
  const lastId = request.headers['last-event-id'] as string | undefined;
  const end = await readEndSeq(ctx.pool, orgId);
  const placeIn = (name: string, text: string | undefined) => {
    const place = readPlace(ctx.cursors, orgId, name, text);
    // What was between would be passed over in silence: the log is not the one that it was.
    if (place !== undefined && place > end) throw badParameter(name, `${name} is behind the end of the log`);
    return place;
  };
  const after =
    placeIn('last-event-id', lastId) ??
    placeIn('cursor', query.cursor) ??
    (await beginning(ctx, orgId, filter, end));
  const signal = AbortSignal.any([places.take(orgId, reply), ctx.stopping]);
  return render(ctx, { orgId, filter, after, signal });
}

/** The place before the first event that can pass, or the end of the log. */
async function beginning(
  { pool }: Context,
  orgId: string,
  { since }: EventFilter,
  end: number,
): Promise<number> {
  const span = since === undefined ? undefined : await findSpan(pool, orgId, { since, until: undefined });
  return span ? span.first - 1 : end;
}

interface Following {
  orgId: string;
  filter: EventFilter;
  after: number;
  signal: AbortSignal;
}

async function* render(ctx: Context, following: Following): AsyncIterable<string> {
  const { orgId, after, signal } = following;
  // The first bytes are what sends the headers off.
  yield ': following\n\n';
  const reached = { seq: after };
  let told = after;
  const idOf = (seq: number) => `id: ${encodePlace(ctx.cursors, orgId, seq)}\n`;
  try {
    for await (const entry of quietly(follow(ctx, following, reached), ctx.settings.logKeepAliveMs)) {
      if (signal.aborted) return;
      if (entry !== QUIET) {
        told = entry.seq;
        const data = JSON.stringify(presentEvent(entry.event!));
        yield `${idOf(told)}event: ${oneLine(entry.event!.event_type)}\ndata: ${data}\n\n`;
      } else if (told < reached.seq) {
        // What did not pass need not be looked at again either.
        told = reached.seq;
        yield `${idOf(told)}\n`;
      } else {
        yield ': nothing new\n\n';
      }
    }
  } catch (error) {
    if (!signal.aborted) ctx.log.error({ err: error, orgId }, 'following events failed');
  }
}

/** History may have brought any type, and a line break would end the field. */
function oneLine(text: string): string {
  return text.replaceAll(/[\r\n]/g, ' ');
}

/** The entries that pass, as they are sealed. `reached` moves on with all that were looked at. */
async function* follow(
  ctx: Context,
  { orgId, filter, signal }: Following,
  reached: { seq: number },
): AsyncIterable<LogEntry> {
  let wake: () => void = () => undefined;
  const unsubscribe = ctx.changes.subscribe(orgId, () => wake(), 'log');
  try {
    while (!signal.aborted) {
      // Before the look, so that nothing falls between the two.
      const woken = new Promise<void>((resolve) => (wake = resolve));
      const { entries, more } = await readLogStream(
        ctx.pool,
        orgId,
        { afterSeq: reached.seq, filter },
        BATCH,
      );
      for (const entry of entries) {
        if (entry.event) yield entry;
        reached.seq = entry.seq;
      }
      if (more) continue;
      const enough = new AbortController();
      await Promise.race([woken, sleep(LOOK_EVERY_MS, AbortSignal.any([signal, enough.signal]))]);
      enough.abort();
    }
  } finally {
    unsubscribe();
  }
}
