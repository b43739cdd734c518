/** The connections of a gateway on loopback: 127.1.0.x are sandboxes, 127.2.0.x destinations. */
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { Acceptor, type AcceptorParts } from '../../src/gateway/connections/acceptor.js';
import { ConnectionLimits } from '../../src/gateway/connections/limits.js';
import { FlowBook } from '../../src/gateway/flows.js';
import type { Denial, SandboxSettings } from '../../src/gateway/protocol.js';
import { SandboxTable } from '../../src/gateway/sandbox.js';
import { CidrSet } from '../../src/lib/cidr.js';
import type { NetworkPolicy } from '../../src/network-policy/schema.js';

export const SANDBOX = '127.1.0.1';
export const OTHER_SANDBOX = '127.1.0.2';

export function settingsOf(policy: NetworkPolicy, changes: Partial<SandboxSettings> = {}): SandboxSettings {
  return {
    id: 'sandbox',
    orgId: 'org',
    address: SANDBOX,
    policy,
    surroundings: { hosts: [], resolvers: [], neighbours: [], openableGroups: [] },
    strict: true,
    dns: { nameservers: [], queryTimeoutMs: 5_000, rebindProtection: true },
    tls: {
      enabled: false,
      ports: [443],
      bypass: [],
      verifyUpstream: true,
      scopedVerify: [],
      authorities: [],
      blockQuic: true,
      cacheCapacity: 1_000,
      validityHours: 24,
    },
    secrets: [],
    ...changes,
  };
}

export class Front {
  readonly table = new SandboxTable();
  readonly flows = new FlowBook();
  readonly denials: Denial[] = [];
  readonly acceptor: Acceptor;
  private readonly servers: Server[] = [];
  private readonly sockets = new Set<Socket>();
  /** The port that the acceptor takes a connection for, by that of its listener. */
  private readonly meant = new Map<number, number>();
  private readonly listeners = new Map<number, number>();
  private readonly upstreams = new Map<string, number>();

  constructor(parts: Partial<AcceptorParts> = {}) {
    this.acceptor = new Acceptor({
      table: this.table,
      flows: this.flows,
      denials: { add: (denial) => this.denials.push(denial) },
      limits: new ConnectionLimits(65_536),
      own: new CidrSet(['169.254.7.53/32']),
      destinationOf: ({ localAddress, localPort }) => ({
        address: localAddress,
        port: this.meant.get(localPort!),
      }),
      dial: (address, port) =>
        connect({ host: address, port: this.upstreamOf(address, port), allowHalfOpen: true, noDelay: true }),
      ...parts,
    });
  }

  upstreamOf(address: string, port: number): number {
    // Nothing listens on port 1.
    return this.upstreams.get(`${address}:${port}`) ?? 1;
  }

  /** The sandbox has resolved the name to the address. */
  bind(name: string, address: string, id = 'sandbox'): void {
    this.table.byIdOf(id)!.bindings.bind(name, [address], 60);
  }

  /** A server in the network. */
  async serve(address: string, port: number, server: Server): Promise<void> {
    server.listen(0, address);
    await once(server, 'listening');
    this.upstreams.set(`${address}:${port}`, (server.address() as AddressInfo).port);
    this.servers.push(server);
    server.on('connection', (socket: Socket) => this.keep(socket));
  }

  /** A server that does as it is told with each connection. */
  async serveRaw(address: string, port: number, handle: (socket: Socket) => void): Promise<void> {
    await this.serve(address, port, createServer({ allowHalfOpen: true }, handle));
  }

  /** The real port of the gateway that stands for a port of the network. */
  async portFor(port: number): Promise<number> {
    const known = this.listeners.get(port);
    if (known !== undefined) return known;
    const listener = this.acceptor.serve();
    listener.listen(0, '0.0.0.0', 4_096);
    await once(listener, 'listening');
    const real = (listener.address() as AddressInfo).port;
    this.listeners.set(port, real);
    this.meant.set(real, port);
    this.servers.push(listener);
    return real;
  }

  /** A connection from a sandbox. */
  async connect(address: string, port: number, from = SANDBOX): Promise<Socket> {
    const real = await this.portFor(port);
    const socket = connect({ host: address, port: real, localAddress: from, allowHalfOpen: true });
    this.keep(socket);
    await once(socket, 'connect');
    return socket;
  }

  close(): void {
    for (const socket of this.sockets) socket.destroy();
    for (const server of this.servers) server.close();
  }

  private keep(socket: Socket): void {
    this.sockets.add(socket);
    socket.on('error', () => {}).on('close', () => this.sockets.delete(socket));
  }
}

/** Everything that a socket receives, and how it ends. */
export async function outcomeOf(socket: Socket): Promise<{ text: string; end: 'end' | 'reset' }> {
  const chunks: Buffer[] = [];
  let wasReset = false;
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  socket.on('error', () => (wasReset = true));
  socket.on('end', () => {
    // A reset that came together with the last bytes is an end for libuv, but the socket has no peer.
    wasReset ||= !socket.writableEnded && socket.remoteAddress === undefined;
    socket.end();
  });
  if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve));
  return { text: Buffer.concat(chunks).toString('latin1'), end: wasReset ? 'reset' : 'end' };
}

/** A ClientHello as RFC 8446 has it. */
export function clientHello(name: string | undefined, extra: Buffer = Buffer.alloc(0)): Buffer {
  const block = (size: number, bytes: Buffer) => {
    const length = Buffer.alloc(size);
    length.writeUIntBE(bytes.length, 0, size);
    return Buffer.concat([length, bytes]);
  };
  const sni =
    name === undefined
      ? Buffer.alloc(0)
      : Buffer.concat([
          Buffer.from([0, 0]),
          block(2, block(2, Buffer.concat([Buffer.from([0]), block(2, Buffer.from(name, 'latin1'))]))),
        ]);
  const body = Buffer.concat([
    Buffer.from([3, 3]),
    Buffer.alloc(32, 7),
    block(1, Buffer.alloc(32, 9)),
    block(2, Buffer.from([0x13, 0x01, 0x0a, 0x0a])),
    block(1, Buffer.from([0])),
    block(2, Buffer.concat([sni, extra])),
  ]);
  return record(Buffer.concat([Buffer.from([1]), block(3, body)]));
}

/** Records of TLS with at most `most` bytes each. */
export function record(message: Buffer, most = 16_384): Buffer {
  const records: Buffer[] = [];
  for (let at = 0; at < message.length; at += most) {
    const part = message.subarray(at, at + most);
    records.push(Buffer.from([22, 3, 1, part.length >> 8, part.length & 0xff]), part);
  }
  return Buffer.concat(records);
}
