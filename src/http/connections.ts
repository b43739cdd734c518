import type { IncomingMessage, Server } from 'node:http';
import type { Socket } from 'node:net';
import type { FastifyBaseLogger } from 'fastify';
import { clientNetworkOf } from '../lib/cidr.js';
import { Linked, LinkedList } from '../lib/linked-list.js';
import { carrierOf, notePeer, peerOf, type TrustedProxies } from './client-address.js';
import type { SlotLimits } from '../fairness/slots.js';

/** The default at most; an idle connection takes about 10 KB. */
export const MOST_CONNECTIONS = 10_000;
/** Descriptors for the database, the engine, webhooks, files and the log. */
export const RESERVED_DESCRIPTORS = 128;
const ASSUMED_DESCRIPTORS = 4_096;
const MAX_REFUSED = 64;
const WARN_EVERY_MS = 10_000;

/** A connection may need a second descriptor: of a stream of the engine, of a file, or of another process. */
export function connectionsFor(descriptors = ASSUMED_DESCRIPTORS): number {
  const reserved = Math.min(RESERVED_DESCRIPTORS, Math.floor(descriptors / 2));
  return Math.min(Math.floor((descriptors - reserved) / 2), MOST_CONNECTIONS);
}

interface Network {
  name: string;
  most: number;
  count: number;
  /** The longest idle first. */
  idle: LinkedList<Connection>;
}

class Connection extends Linked {
  requests = 0;

  constructor(
    readonly socket: Socket,
    readonly network: Network,
  ) {
    super();
  }
}

/** The number of its request, on a request that is counted. */
const COUNT = Symbol('count');
type Counted = Pick<IncomingMessage, 'socket'> & { [COUNT]?: number };

/**
 * Limits the connections, in total and of one address, or IPv6 network of 64 bits. At a limit the longest idle
 * connections of the address that has the most are closed. Without an idle one, the new connection is refused.
 */
export class Connections {
  private readonly open = new Map<Socket, Connection>();
  private readonly networks = new Map<string, Network>();
  private refused = 0;
  private evictions = 0;
  private refusals = 0;
  private warnedAt = -Infinity;

  constructor(
    private readonly limits: SlotLimits,
    private readonly proxies: TrustedProxies,
    private readonly log: FastifyBaseLogger,
    private readonly refuse: (socket: Socket) => void,
  ) {}

  watch(server: Server): void {
    server.maxConnections = this.limits.total + 2 * MAX_REFUSED;
    server.prependListener('connection', (socket: Socket) => this.add(socket));
    server.prependListener('request', (request) => this.begin(request));
  }

  /**
   * Returns how many requests were in progress on the connection when this one arrived; undefined if the connection was
   * refused.
   */
  begin(request: Counted): number | undefined {
    if (request[COUNT] !== undefined) return request[COUNT];
    const connection = this.open.get(carrierOf(request.socket));
    if (!connection) return undefined;
    connection.network.idle.delete(connection);
    connection.requests += 1;
    request[COUNT] = connection.requests;
    return connection.requests;
  }

  end(used: Socket): void {
    const connection = this.open.get(carrierOf(used));
    if (!connection) return;
    connection.requests -= 1;
    if (connection.requests === 0) connection.network.idle.add(connection);
  }

  private add(socket: Socket): void {
    if (this.open.has(carrierOf(socket))) return;
    const peer = peerOf(socket);
    notePeer(socket, peer);
    const name = clientNetworkOf(peer);
    const network = this.networks.get(name) ?? {
      name,
      most: this.mostOf(peer),
      count: 0,
      idle: new LinkedList(),
    };
    if (!this.makeRoom(network)) return this.turnAway(socket);
    this.networks.set(name, network);
    network.count += 1;
    const connection = new Connection(socket, network);
    network.idle.add(connection);
    this.open.set(socket, connection);
    socket.once('close', () => this.remove(socket));
  }

  private remove(socket: Socket): void {
    const connection = this.open.get(socket);
    if (!connection) return;
    this.open.delete(socket);
    const { network } = connection;
    network.idle.delete(connection);
    network.count -= 1;
    if (network.count === 0) this.networks.delete(network.name);
  }

  /**
   * A trusted proxy has the connections of many clients. Their requests in progress are counted by client (server.ts).
   */
  private mostOf(peer: string): number {
    return this.proxies.isTrusted(peer) ? this.limits.total : this.limits.each;
  }

  private makeRoom(network: Network): boolean {
    const { total } = this.limits;
    if (network.count >= network.most) this.evict(network, 1);
    if (network.count >= network.most) return false;
    if (this.open.size >= total) this.evictOfMost(Math.ceil(total / 100));
    return this.open.size < total;
  }

  private evictOfMost(amount: number): void {
    const candidates = [...this.networks.values()]
      .filter(({ idle }) => idle.size > 0)
      .toSorted((a, b) => b.count - a.count);
    let left = amount;
    while (left > 0 && candidates.length > 0) {
      const network = candidates.shift()!;
      const lead = network.count - (candidates[0]?.count ?? 0);
      left -= this.evict(network, Math.min(left, Math.max(lead, 1)));
      if (network.idle.size > 0) candidates.push(network);
    }
  }

  private evict({ idle }: Network, amount: number): number {
    let evicted = 0;
    for (const { socket } of idle) {
      if (evicted === amount) break;
      evicted += 1;
      this.remove(socket);
      socket.destroy();
    }
    this.evictions += evicted;
    if (evicted > 0) this.warn();
    return evicted;
  }

  private turnAway(socket: Socket): void {
    this.refusals += 1;
    this.warn();
    socket.on('error', () => socket.destroy());
    if (this.refused >= MAX_REFUSED) {
      socket.destroy();
      return;
    }
    this.refused += 1;
    socket.once('close', () => (this.refused -= 1));
    this.refuse(socket);
  }

  private warn(): void {
    const now = performance.now();
    if (now - this.warnedAt < WARN_EVERY_MS) return;
    this.warnedAt = now;
    const { evictions: closedIdle, refusals: refused } = this;
    this.log.warn(
      { open: this.open.size, addresses: this.networks.size, closedIdle, refused },
      'the limit of connections is reached: see --max-connections and --max-connections-of-address',
    );
    this.evictions = 0;
    this.refusals = 0;
  }
}
