import { once } from 'node:events';
import {
  connect,
  createServer,
  type AddressInfo,
  type NetConnectOpts,
  type Server,
  type Socket,
} from 'node:net';

/**
 * Passes TCP connections on, until it is cut: then it keeps them open and carries nothing, as a network does that loses
 * packets.
 */
export class CutProxy {
  private readonly sockets = new Set<Socket>();
  private isCut = false;

  private constructor(
    private readonly server: Server,
    private readonly target: NetConnectOpts,
  ) {
    server.on('connection', (near) => this.carry(near));
  }

  static async make(target: NetConnectOpts): Promise<CutProxy> {
    const server = createServer({ pauseOnConnect: true }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new CutProxy(server, target);
  }

  get port(): number {
    return (this.server.address() as AddressInfo).port;
  }

  cut(): void {
    this.isCut = true;
    for (const socket of this.sockets) socket.pause();
  }

  /** Connections of the time before are broken: packets of minutes are lost. */
  heal(): void {
    this.isCut = false;
    for (const socket of this.sockets) socket.destroy();
  }

  async close(): Promise<void> {
    this.heal();
    const closed = once(this.server, 'close');
    this.server.close();
    await closed;
  }

  private carry(near: Socket): void {
    this.hold(near);
    // The handshake succeeds, as in the queue of a machine that answers no more.
    if (this.isCut) return;
    const far = connect(this.target);
    this.hold(far);
    const pass = (from: Socket, to: Socket) => {
      from.on('data', (chunk) => {
        if (!this.isCut) to.write(chunk);
      });
      from.on('close', () => (this.isCut ? undefined : to.destroy()));
    };
    pass(near, far);
    pass(far, near);
    near.resume();
  }

  private hold(socket: Socket): void {
    this.sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('close', () => this.sockets.delete(socket));
  }
}
