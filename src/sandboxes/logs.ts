import type { FastifyReply } from 'fastify';
import { Readable } from 'node:stream';
import type { Context } from '../context.js';
import { ApiError } from '../http/errors.js';
import { sleep } from '../lib/sleep.js';
import { nanosOf } from '../runtimes/docker-logs.js';
import type { LogLine, LogQuery } from '../runtimes/runtime.js';
import { encodeCursor, type LogCursor } from './log-cursor.js';
import { getPlace, type SandboxKey } from './queries.js';

/** A notification can be lost while the database connection is down: look at least this often, in milliseconds. */
const LOOK_EVERY_MS = 1_000;
const BUFFER_BYTES = 64 * 1024;
const QUIET = Symbol('quiet');

interface Subject {
  orgId: string;
  id: string;
}

/** Follows the logs of sandboxes. Bounded, because each costs a connection to the client and one to the engine. */
export class LogFollowers {
  private open = 0;

  constructor(private readonly ctx: Context) {}

  /**
   * The log as server-sent events. It ends with the event `end` when the run is over; without it when the service stops or
   * the engine fails, so that a client knows that it has not seen everything. What is read from the engine waits for the
   * client, and stops when the client leaves.
   */
  async follow(orgId: string, key: SandboxKey, query: LogQuery, reply: FastifyReply): Promise<Readable> {
    const { ctx } = this;
    const place = await getPlace(ctx.pool, orgId, key);
    if (!place) throw new ApiError('sandbox_not_found');
    refuseElsewhere(ctx, place.worker_id);
    if (this.open >= ctx.settings.maxLogFollowers) {
      throw new ApiError('rate_limited', 'too many logs are followed: try again later', null, {
        headers: { 'retry-after': '5' },
      });
    }
    this.open += 1;
    const gone = new AbortController();
    const leave = () => {
      if (gone.signal.aborted) return;
      this.open -= 1;
      gone.abort();
    };
    reply.raw.once('close', leave);
    if (reply.raw.destroyed) leave();
    const ends = AbortSignal.any([gone.signal, ctx.stopping]);
    return Readable.from(this.events({ orgId, id: place.id }, query, ends), {
      objectMode: false,
      highWaterMark: BUFFER_BYTES,
    });
  }

  private async *events(subject: Subject, query: LogQuery, signal: AbortSignal): AsyncIterable<string> {
    // The first bytes are what sends the headers off.
    yield ': following\n\n';
    const reached: LogCursor = { ...query.after };
    try {
      for await (const line of quietly(
        this.lines(subject, query, signal),
        this.ctx.settings.logKeepAliveMs,
      )) {
        if (signal.aborted) return;
        yield line === QUIET ? ': nothing new\n\n' : render(line, reached);
      }
    } catch (error) {
      if (!signal.aborted) {
        this.ctx.log.error(
          { err: error, orgId: subject.orgId, sandboxId: subject.id },
          'following a log failed',
        );
      }
      return;
    }
    if (!signal.aborted) yield 'event: end\ndata: {}\n\n';
  }

  private async *lines(subject: Subject, query: LogQuery, signal: AbortSignal): AsyncIterable<LogLine> {
    await this.whileStarting(subject, signal);
    if (!signal.aborted) yield* this.ctx.runtime.logs(subject.id, query, signal);
  }

  /** Before a sandbox has started there is no log that could be followed. */
  private async whileStarting({ orgId, id }: Subject, signal: AbortSignal): Promise<void> {
    let wake: () => void = () => undefined;
    const unsubscribe = this.ctx.changes.subscribe(id, () => wake());
    try {
      while (!signal.aborted) {
        // Before the look, so that no change falls between the two.
        const changed = new Promise<void>((resolve) => (wake = resolve));
        const place = await getPlace(this.ctx.pool, orgId, { id });
        if (place?.status !== 'starting') {
          refuseElsewhere(this.ctx, place?.worker_id ?? null);
          return;
        }
        const pause = new AbortController();
        await Promise.race([changed, sleep(LOOK_EVERY_MS, AbortSignal.any([signal, pause.signal]))]);
        pause.abort();
      }
    } finally {
      unsubscribe();
    }
  }
}

function refuseElsewhere(ctx: Context, workerId: string | null): void {
  if (workerId === null || workerId === ctx.runtime.engineId) return;
  throw new ApiError(
    'not_supported',
    'the sandbox runs on another worker: its log is served by the service on that machine only',
    { worker_id: workerId },
  );
}

/** Passes lines on, and says so when there has been none for a while. */
async function* quietly(
  lines: AsyncIterable<LogLine>,
  millis: number,
): AsyncIterable<LogLine | typeof QUIET> {
  const iterator = lines[Symbol.asyncIterator]();
  let next = iterator.next();
  try {
    for (;;) {
      const pause = new AbortController();
      const result = await Promise.race([next, sleep(millis, pause.signal).then(() => QUIET)]);
      pause.abort();
      if (typeof result === 'symbol') yield QUIET;
      else if (result.done === true) return;
      else {
        yield result.value;
        next = iterator.next();
      }
    }
  } finally {
    next.catch(() => undefined);
    await iterator.return?.();
  }
}

/** One event. `reached` moves on with it: its id says from where to go on. */
function render({ source, ts, text }: LogLine, reached: LogCursor): string {
  if (source === 'stdout' || source === 'stderr') reached[source] = nanosOf(ts);
  return `event: log\nid: ${encodeCursor(reached)}\ndata: ${JSON.stringify({ source, ts, text })}\n\n`;
}
