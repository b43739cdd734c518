import { createServer, type Server, type Socket } from 'node:net';
import { CidrSet } from '../../lib/cidr.js';
import { GATEWAY_ADDRESS } from '../protocol.js';
import type { SandboxTable } from '../sandbox.js';
import { Connection, type ConnectionParts } from './connection.js';
import { reset } from './splice.js';

/** The gateway itself, whose listeners no sandbox reaches as a destination. */
const OWN = new CidrSet(['0.0.0.0/8', '127.0.0.0/8', `${GATEWAY_ADDRESS}/32`]);
/** The kernel holds so many connections that are not accepted yet: as many as a sandbox may open in a burst. */
export const BACKLOG = 4_096;

export interface AcceptorParts extends ConnectionParts {
  table: SandboxTable;
  /** Default: those of the gateway. */
  own?: CidrSet;
  /** Default: its local address, which a transparent proxy sees. */
  destinationOf?: (socket: Socket) => Destination;
}

interface Destination {
  address: string | undefined;
  port: number | undefined;
}

function localAddressOf({ localAddress, localPort }: Socket): Destination {
  return { address: localAddress, port: localPort };
}

/**
 * Accepts the connections that the kernel redirects. The local address of a socket is the original destination, and its
 * remote address the sandbox, which the kernel has checked.
 */
export class Acceptor {
  private readonly bySandbox = new Map<string, Set<Socket>>();

  constructor(private readonly parts: AcceptorParts) {}

  serve(): Server {
    return createServer({ allowHalfOpen: true }, (socket) => this.accept(socket));
  }

  /** Ends the connections of a sandbox that is gone. */
  forget(id: string): void {
    reset(...(this.bySandbox.get(id) ?? []));
  }

  private accept(socket: Socket): void {
    const { table, limits, own = OWN, destinationOf = localAddressOf } = this.parts;
    const { remoteAddress } = socket;
    const { address, port } = destinationOf(socket);
    const sandbox = remoteAddress === undefined ? undefined : table.at(remoteAddress);
    const slot = sandbox && limits.acquire(sandbox.settings);
    if (!sandbox || !slot || address === undefined || port === undefined || own.includes(address)) {
      slot?.release();
      socket.on('error', () => {});
      return reset(socket);
    }
    const { id } = sandbox.settings;
    const sockets = this.bySandbox.get(id) ?? new Set();
    this.bySandbox.set(id, sockets.add(socket));
    socket.on('close', () => {
      slot.release();
      sockets.delete(socket);
      if (sockets.size === 0 && this.bySandbox.get(id) === sockets) this.bySandbox.delete(id);
    });
    new Connection(socket, { sandbox, address, port }, this.parts, slot.decided).begin();
  }
}
