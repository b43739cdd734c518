import type { FastifyReply } from 'fastify';
import { Readable } from 'node:stream';
import { Type } from 'typebox';
import { Slots } from '../fairness/slots.js';
import { endAdmission } from './admission.js';
import { ApiError } from './errors.js';
import { whenOver } from './when-over.js';

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

/** Limits the open streams, because each holds a connection. One organization may have half of them. */
export class StreamLimit {
  private readonly limit;

  constructor(
    total: number,
    private readonly refusal: string,
  ) {
    this.limit = new Slots({ total, each: Math.ceil(total / 2) });
  }

  /**
   * Holds a slot until the client leaves. The returned signal aborts then. Throws `rate_limited` if there is no slot.
   */
  acquire(orgId: string, reply: FastifyReply): AbortSignal {
    const release = this.limit.acquire(orgId);
    if (!release) {
      throw new ApiError('rate_limited', this.refusal, null, { headers: { 'retry-after': '5' } });
    }
    endAdmission(reply.request);
    const gone = new AbortController();
    whenOver(reply, () => {
      release();
      gone.abort();
    });
    return gone.signal;
  }
}

/**
 * Sends server-sent events with backpressure. With `stallMs`, a client that reads nothing for that many milliseconds is
 * disconnected.
 */
export function sendEvents(
  reply: FastifyReply,
  events: AsyncIterable<string | Buffer>,
  stallMs?: number,
): FastifyReply {
  const disconnect = () => {
    reply.log.info('a slow reader was cut off');
    reply.raw.destroy();
  };
  const source = stallMs === undefined ? events : withStallTimeout(events, stallMs, disconnect);
  const stream = Readable.from(source, { objectMode: false, highWaterMark: BUFFER_BYTES });
  void reply.headers({
    // Proxies must not buffer the stream.
    'cache-control': 'no-store, no-transform',
    'x-accel-buffering': 'no',
    // Otherwise a service that stops would wait until the client closes the connection.
    connection: 'close',
  });
  return reply.type(EVENT_STREAM).send(stream);
}

/** Calls `onStall` if the consumer does not ask for the next item within `millis`. */
async function* withStallTimeout<T>(
  items: AsyncIterable<T>,
  millis: number,
  onStall: () => void,
): AsyncIterable<T> {
  for await (const item of items) {
    const timer = setTimeout(onStall, millis);
    try {
      yield item;
    } finally {
      clearTimeout(timer);
    }
  }
}

/** The last message of a service that stops: the client connects again after a second. */
export const RETRY = 'retry: 1000\n\n';

export const IDLE_MARK = Symbol('idle');

/** Yields the items, and IDLE_MARK whenever none has come for `millis`. */
export async function* withIdleMarks<T>(
  items: AsyncIterable<T>,
  millis: number,
): AsyncIterable<T | typeof IDLE_MARK> {
  const iterator = items[Symbol.asyncIterator]();
  let next = iterator.next();
  try {
    for (;;) {
      let timer: NodeJS.Timeout;
      const idle = new Promise<typeof IDLE_MARK>((resolve) => {
        timer = setTimeout(resolve, millis, IDLE_MARK);
      });
      const result = await Promise.race([next, idle]);
      clearTimeout(timer!);
      if (result === IDLE_MARK) yield IDLE_MARK;
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
