import { Agent, type ClientRequest } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

/**
 * Sends the requests of one client over one connection, one at a time. No connection is shared between clients. It is
 * not opened again: the client sees its end, and decides about a retry as without the gateway.
 */
export class UpstreamAgent extends Agent {
  private readonly waiting: ClientRequest[] = [];
  private current: ClientRequest | undefined;
  private isEnding = false;

  constructor(private readonly socket: Duplex) {
    super({ keepAlive: true });
    socket.on('free', () => {
      this.current = undefined;
      this.next();
    });
    socket.once('close', () => {
      for (const request of this.waiting.splice(0))
        request.destroy(new Error('the server closed the connection'));
    });
  }

  get isIdle(): boolean {
    return !this.current && this.waiting.length === 0;
  }

  /** Ends the side of the client after its last request. The server decides whether it still answers. */
  endWhenSent(): void {
    this.isEnding = true;
    this.endIfSent();
  }

  private endIfSent(): void {
    if (!this.isEnding || this.waiting.length > 0) return;
    const { current } = this;
    if (current && !current.writableFinished) current.once('finish', () => this.endIfSent());
    else this.socket.end();
  }

  /** Node calls it for each new request. */
  addRequest(request: ClientRequest): void {
    this.waiting.push(request);
    this.next();
  }

  private next(): void {
    if (this.current) return;
    const request = this.waiting.shift();
    if (!request) return this.endIfSent();
    if (request.destroyed) return this.next();
    this.current = request;
    request.onSocket(this.socket as Socket);
  }
}
