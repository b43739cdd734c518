import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import { LoopTime } from '../fairness/loop-time.js';
import type { SlotLimits } from '../fairness/slots.js';

type Begin = (request: IncomingMessage, response: ServerResponse) => void;

/** An iteration that accepts a connection begins fewer requests. */
const ACCEPT_MS = 0.5;
export const BEGIN_QUEUE: SlotLimits = { total: 10_000, each: 4_000 };

/**
 * Begins requests within the time of the event loop, in turns of the values of `ownerOf`. Node accepts one connection
 * in each iteration. After a burst of connections, their requests would otherwise begin before the connections of
 * others are accepted.
 */
export class BeginQueue {
  private readonly time = new LoopTime();

  constructor(
    private readonly ownerOf: (request: IncomingMessage) => string,
    private readonly limits = BEGIN_QUEUE,
  ) {}

  watch(server: Server): void {
    const [begin] = server.listeners('request') as [Begin];
    server.off('request', begin);
    server.on('request', (request, response) => {
      this.enter(request, () => begin(request, response));
    });
    server.prependListener('connection', () => this.time.owe(ACCEPT_MS));
  }

  private enter(request: IncomingMessage, begin: () => void): void {
    if (this.time.tryNow(begin)) return;
    const owner = this.ownerOf(request);
    const { total, each } = this.limits;
    if (this.time.waits >= total || this.time.waitsOf(owner) >= each) return begin();
    this.time.run(owner, () => {
      if (!request.socket.destroyed) begin();
      return true;
    });
  }
}
