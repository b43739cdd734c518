import type { FastifyReply } from 'fastify';
import type { Caller } from '../access/caller.js';
import { readerOf } from '../access/reader.js';
import type { Context } from '../context.js';
import type { PacedSteps } from '../fairness/paced-steps.js';
import { ApiError, badParameter } from '../http/errors.js';
import { IDLE_MARK, RETRY, StreamLimit, withIdleMarks } from '../http/sse.js';
import { shortInstant } from '../lib/instant.js';
import type { Settings } from '../settings.js';
import { readLog, type LogPiece } from './log-queries.js';
import { findTemplate } from './queries.js';
import { hasEnded } from './state.js';
import { untilChanged } from './until-changed.js';

/** Each follower reads the log once in this time, also without a change. */
const LOOK_EVERY_MS = 1_000;
const PIECES = 64;

/** Bounded, because each follower holds a connection. */
export class BuildFollowers {
  private readonly limit: StreamLimit;

  constructor(
    { maxLogFollowers }: Pick<Settings, 'maxLogFollowers'>,
    private readonly steps: PacedSteps,
  ) {
    this.limit = new StreamLimit(maxLogFollowers, 'too many logs of builds are followed: try again later');
  }

  /** Server-sent events of the log. The event `end` follows the end of the build. A stream without it is incomplete. */
  async follow(
    ctx: Context,
    caller: Caller,
    id: string,
    lastEventId: string | undefined,
    reply: FastifyReply,
  ): Promise<AsyncIterable<string>> {
    const after = readPosition(lastEventId);
    if (!(await findTemplate(ctx.pool, readerOf(caller), id))) throw new ApiError('template_not_found');
    const gone = this.limit.acquire(caller.orgId, reply);
    return this.events(ctx, caller, id, after, AbortSignal.any([gone, ctx.stopping]));
  }

  private async *events(
    ctx: Context,
    caller: Caller,
    id: string,
    after: number,
    signal: AbortSignal,
  ): AsyncIterable<string> {
    // The first bytes make the server send the headers.
    yield ': following\n\n';
    try {
      for await (const item of withIdleMarks(
        pieces(ctx, caller, id, after, signal),
        ctx.settings.logKeepAliveMs,
      )) {
        if (signal.aborted) break;
        if (item === IDLE_MARK) yield ': nothing new\n\n';
        else if ('status' in item) yield `event: end\ndata: ${JSON.stringify(item)}\n\n`;
        else yield await this.steps.step(caller.orgId, () => item.list.map(render).join(''));
      }
    } catch (error) {
      if (!signal.aborted) {
        ctx.log.error({ err: error, templateId: id }, 'following the log of a build failed');
        return;
      }
    }
    if (ctx.stopping.aborted) yield RETRY;
  }
}

/** Yields what is new until the build has ended, and then its status. */
async function* pieces(
  ctx: Context,
  caller: Caller,
  id: string,
  begin: number,
  signal: AbortSignal,
): AsyncIterable<{ list: LogPiece[] } | { status: string }> {
  let after = begin;
  const ref = { orgId: caller.orgId, templateId: id };
  const change = { id, channel: 'template', signal, everyMs: LOOK_EVERY_MS } as const;
  for (;;) {
    const found = await untilChanged(ctx, change, async () => {
      const row = await findTemplate(ctx.pool, readerOf(caller), id);
      const list = await readLog(ctx.pool, ref, after, PIECES);
      if (list.length > 0) return { list };
      return !row || hasEnded(row.status) ? { status: row?.status ?? 'cancelled' } : undefined;
    });
    yield found;
    if ('status' in found) return;
    after = found.list.at(-1)!.position;
  }
}

function render({ position, at, source, text }: LogPiece): string {
  return `event: log\nid: ${position}\ndata: ${JSON.stringify({ source, ts: shortInstant(at), text })}\n\n`;
}

function readPosition(text: string | undefined): number {
  if (text === undefined) return 0;
  if (!/^\d{1,9}$/.test(text))
    throw badParameter('last-event-id', 'last-event-id must be the id of an event of this log');
  return Number(text);
}
