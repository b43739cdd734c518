import type { FastifyReply, FastifyRequest } from 'fastify';
import { callerOf } from '../../access/caller.js';
import type { Context } from '../../context.js';
import type { RequestAdmission } from '../../http/admission.js';
import { ApiError, badParameter } from '../../http/errors.js';
import { IDLE_MARK, RETRY, withIdleMarks, type StreamLimit } from '../../http/sse.js';
import type { PacedSteps } from '../../fairness/paced-steps.js';
import type { EventFilter } from '../events/queries.js';
import { findSpan, readEndSeq } from '../log/log-queries.js';
import type { FilterQuery } from './filter.js';
import { readKnownFilter } from './known-event-types.js';
import type { Piece, SharedReads, StreamFormat } from './shared-reads.js';
import { encodePosition, parsePosition } from './stream-position.js';

/** Notifications are lost while their database connection is down, so the stream also polls. In milliseconds. */
const POLL_MS = 1_000;
/** The time in which a stream sends a piece, also without one. */
const SEND_MS = 0.3;

/**
 * Default position: the end of the log, or with `since` the first event that passes. Any process of the service accepts
 * the `id`.
 */
export async function stream(
  ctx: Context,
  limit: StreamLimit,
  reads: SharedReads,
  steps: PacedSteps,
  request: FastifyRequest,
  reply: FastifyReply,
  { format = 'sandkeep', ...query }: FilterQuery & { cursor?: string; format?: StreamFormat },
): Promise<AsyncIterable<string | Buffer>> {
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
  return render(ctx, {
    reads,
    steps,
    admission: request.admission!,
    orgId,
    filter,
    format,
    afterSeq,
    signal,
  });
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
  reads: SharedReads;
  steps: PacedSteps;
  admission: RequestAdmission;
  orgId: string;
  filter: EventFilter;
  format: StreamFormat;
  afterSeq: number;
  signal: AbortSignal;
}

async function* render(ctx: Context, subscription: Subscription): AsyncIterable<string | Buffer> {
  const { orgId, afterSeq, signal } = subscription;
  yield ': following\n\n';
  const scanned = { seq: afterSeq };
  let sent = afterSeq;
  try {
    for await (const message of withIdleMarks(
      follow(ctx, subscription, scanned),
      ctx.settings.logKeepAliveMs,
    )) {
      if (signal.aborted) break;
      if (message !== IDLE_MARK) {
        sent = message.seq;
        yield message.text;
      } else if (sent < scanned.seq) {
        // A client that reconnects need not scan the filtered entries again.
        sent = scanned.seq;
        yield `id: ${encodePosition(ctx.cursors, orgId, sent)}\n\n`;
      } else {
        yield ': nothing new\n\n';
      }
    }
  } catch (error) {
    if (!signal.aborted) ctx.log.error({ err: error, orgId }, 'the stream of events failed');
  }
  if (ctx.stopping.aborted) yield RETRY;
}

/** The entries that pass the filter, as they are sealed. Updates `scanned` for every entry. */
async function* follow(
  ctx: Context,
  { reads, steps, admission, orgId, filter, format, signal }: Subscription,
  scanned: { seq: number },
): AsyncIterable<Piece> {
  let wake: () => void = () => undefined;
  let changedAt = performance.now();
  const unsubscribe = ctx.changes.subscribe(
    orgId,
    () => {
      changedAt = performance.now();
      wake();
    },
    'log',
  );
  const leave = () => wake();
  signal.addEventListener('abort', leave);
  const room = async () => steps.step(orgId, () => undefined, SEND_MS);
  try {
    while (!signal.aborted) {
      // Created before the read, so that no notification falls between the two.
      const woken = new Promise<void>((resolve) => (wake = resolve));
      await room();
      const place = { orgId, filter, format, afterSeq: scanned.seq };
      const read = await reads.next(ctx, admission, place, changedAt).catch(ifRefused);
      for (const [index, piece] of (read?.pieces ?? []).entries()) {
        if (index > 0) await room();
        yield piece;
        scanned.seq = piece.seq;
      }
      scanned.seq = read?.seq ?? scanned.seq;
      if (read?.more === true) continue;
      const poll = setTimeout(wake, POLL_MS);
      if (!signal.aborted) await woken;
      clearTimeout(poll);
      // Without a notification, a read of another stream is recent enough.
      changedAt = Math.max(changedAt, performance.now() - POLL_MS / 2);
    }
  } finally {
    signal.removeEventListener('abort', leave);
    unsubscribe();
  }
}

/** The organization has too many requests waiting, so the stream reads later. */
function ifRefused(error: unknown): undefined {
  if (!(error instanceof ApiError)) throw error;
}
