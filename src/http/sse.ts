/** What routes share whose answer goes on for as long as somebody listens: server-sent events. */
import type { FastifyReply } from 'fastify';
import { Readable } from 'node:stream';
import { Type } from 'typebox';
import { makePlaces } from '../lib/concurrency-limit.js';
import { sleep } from '../lib/sleep.js';
import { ApiError } from './errors.js';

const EVENT_STREAM = 'text/event-stream';
const BUFFER_BYTES = 64 * 1024;

const Events = Type.Unsafe<Readable>({ type: 'string' });
export const eventStream = {
  200: { description: 'A stream of server-sent events.', content: { [EVENT_STREAM]: { schema: Events } } },
};

export const FollowHeaders = Type.Object({
  'last-event-id': Type.Optional(
    Type.String({
      description: 'The `id` of the last event that the client has seen. The stream continues after it.',
    }),
  ),
});

/** Room for so many who listen at once, half as many of one organization: each has a connection, and more. */
export class Places {
  private readonly places;

  constructor(
    most: number,
    private readonly refusal: string,
  ) {
    this.places = makePlaces({ total: most, each: Math.ceil(most / 2) });
  }

  /** Takes a place until the client leaves, which the signal tells. Throws when there is none. */
  take(orgId: string, reply: FastifyReply): AbortSignal {
    const giveBack = this.places.take(orgId);
    if (!giveBack) {
      throw new ApiError('rate_limited', this.refusal, null, { headers: { 'retry-after': '5' } });
    }
    const gone = new AbortController();
    const leave = () => {
      if (gone.signal.aborted) return;
      giveBack();
      gone.abort();
    };
    reply.raw.once('close', leave);
    if (reply.raw.destroyed) leave();
    return gone.signal;
  }
}

/**
 * Sends events as they come. No more is asked for than the client takes; with `stallMs` one that takes nothing for so many
 * milliseconds is cut off.
 */
export function sendEvents(
  reply: FastifyReply,
  events: AsyncIterable<string>,
  stallMs?: number,
): FastifyReply {
  const cut = () => {
    reply.log.info('a reader that took too long was cut off');
    reply.raw.destroy();
  };
  const stream = Readable.from(stallMs === undefined ? events : watched(events, stallMs, cut), {
    objectMode: false,
    highWaterMark: BUFFER_BYTES,
  });
  // For whoever stands between: pass on what comes, and keep none of it.
  void reply.headers({
    'cache-control': 'no-store, no-transform',
    'x-accel-buffering': 'no',
    // A service that stops would otherwise wait until the client lets go of the connection.
    connection: 'close',
  });
  return reply.type(EVENT_STREAM).send(stream);
}

async function* watched(
  events: AsyncIterable<string>,
  millis: number,
  cut: () => void,
): AsyncIterable<string> {
  for await (const event of events) {
    const timer = setTimeout(cut, millis);
    try {
      yield event;
    } finally {
      clearTimeout(timer);
    }
  }
}

export const QUIET = Symbol('quiet');

/** Passes on what comes, and says so when nothing has come for a while. */
export async function* quietly<T>(items: AsyncIterable<T>, millis: number): AsyncIterable<T | typeof QUIET> {
  const iterator = items[Symbol.asyncIterator]();
  let next = iterator.next();
  try {
    for (;;) {
      const pause = new AbortController();
      const result = await Promise.race([next, sleep(millis, pause.signal).then((): typeof QUIET => QUIET)]);
      pause.abort();
      if (result === QUIET) yield QUIET;
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
