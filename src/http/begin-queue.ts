import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { SlotLimits } from '../fairness/slots.js';

type Begin = (request: IncomingMessage, response: ServerResponse) => void;

/** The time in which a turn of the event loop begins requests, in milliseconds. */
const SHARE_MS = 1;
/** A turn that accepts a connection begins fewer. */
const ACCEPT_MS = 0.5;
/** A pause of the process is no debt of its requests. */
const MOST_DEBT_MS = 3;
export const BEGIN_QUEUE: SlotLimits = { total: 10_000, each: 4_000 };

/**
 * Begins requests in turns of the values of `keyOf`, within a share of each turn of the event loop. Node accepts one connection in each
 * turn. After a burst of connections, their requests would otherwise begin before the connections of others are accepted.
 */
export class BeginQueue {
  private readonly queues = new Map<string, (() => void)[]>();
  private waiting = 0;
  /** The time that requests took beyond the shares of past turns. */
  private debt = 0;
  private isScheduled = false;

  constructor(
    private readonly keyOf: (request: IncomingMessage) => string,
    private readonly limits = BEGIN_QUEUE,
  ) {}

  watch(server: Server): void {
    const [begin] = server.listeners('request') as [Begin];
    server.off('request', begin);
    server.on('request', (request, response) => {
      this.enter(request, () => begin(request, response));
    });
    server.prependListener('connection', () => this.owe(ACCEPT_MS));
  }

  private enter(request: IncomingMessage, begin: () => void): void {
    if (this.waiting === 0 && this.debt < SHARE_MS) return this.run(begin);
    const key = this.keyOf(request);
    const queue = this.queues.get(key) ?? [];
    if (this.waiting >= this.limits.total || queue.length >= this.limits.each) return begin();
    this.queues.set(key, queue);
    this.waiting += 1;
    queue.push(() => {
      if (!request.socket.destroyed) this.run(begin);
    });
  }

  private run(begin: () => void): void {
    const began = performance.now();
    try {
      begin();
    } finally {
      this.owe(performance.now() - began);
    }
  }

  private owe(millis: number): void {
    this.debt = Math.min(this.debt + millis, MOST_DEBT_MS);
    if (this.isScheduled) return;
    this.isScheduled = true;
    setImmediate(() => this.nextTurn());
  }

  private nextTurn(): void {
    this.isScheduled = false;
    this.debt = Math.max(0, this.debt - SHARE_MS);
    while (this.waiting > 0 && this.debt < SHARE_MS) this.takeNext();
    if (this.debt > 0 || this.waiting > 0) this.owe(0);
  }

  private takeNext(): void {
    const [key, queue] = this.queues.entries().next().value!;
    this.waiting -= 1;
    const next = queue.shift()!;
    this.queues.delete(key);
    if (queue.length > 0) this.queues.set(key, queue);
    next();
  }
}
