import { Agent, type ClientRequest } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/**
 * Sends the requests of one client over one connection, one at a time. No connection is shared between clients. It is
 * not opened again: the client sees its end, and decides about a retry as without the gateway.
 */
export class UpstreamAgent extends Agent {
  private readonly waiting: ClientRequest[] = [];
  private isBusy = false;

  constructor(private readonly socket: Duplex) {
    super({ keepAlive: true });
    socket.on('free', () => {
      this.isBusy = false;
      this.next();
    });
    socket.once('close', () => {
      for (const request of this.waiting.splice(0))
        request.destroy(new Error('the server closed the connection'));
    });
  }

  get isIdle(): boolean {
    return !this.isBusy && this.waiting.length === 0;
  }

  /** Node calls it for each new request. */
  addRequest(request: ClientRequest): void {
    this.waiting.push(request);
    this.next();
  }

  private next(): void {
    if (this.isBusy) return;
    const request = this.waiting.shift();
    if (!request) return;
    if (request.destroyed) return this.next();
    this.isBusy = true;
    request.onSocket(this.socket as Socket);
  }
}
