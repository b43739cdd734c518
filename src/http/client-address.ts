import type { FastifyRequest } from 'fastify';
import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { isIP, type Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { CidrSet, normalizeAddress } from '../lib/cidr.js';

declare module 'fastify' {
  interface FastifyRequest {
    client: Client;
  }
}

/** The address of every client of a Unix socket, and the word that trusts these clients as proxies. */
export const UNIX_PEER = 'unix';
/** The trusted proxies that a request may have passed. */
export const MOST_HOPS = 32;
/** An IPv6 address with its zone, its brackets and its port is shorter. */
const LONGEST_HOP = 80;
const HOST = /^[\w.:[\]-]{1,255}$/;

export interface Client {
  /** An IP address without a zone, or `unix`. Empty: the connection closed before its address was read. */
  address: string;
  /** A trusted proxy has passed the request on. */
  isProxied: boolean;
  /** The client uses HTTPS. */
  isHttps: boolean;
  /** The host that the client named. */
  host: string | undefined;
}

const peers = new WeakMap<Socket, string>();
const carriers = new WeakMap<Socket, Socket>();

/** `carrier`: the connection that the encrypted one is in. */
export function carry(socket: Socket, carrier: Socket): void {
  carriers.set(socket, carrier);
}

export function carrierOf(socket: Socket): Socket {
  return carriers.get(socket) ?? socket;
}

/** A closed socket has no address: it is noted when the connection is accepted. */
export function notePeer(socket: Socket, address: string): void {
  peers.set(socket, address);
}

/** The addresses that trusted proxies saw, as they wrote them. The peer is not among them. */
export function proxiesOf({ headers }: { headers: IncomingHttpHeaders }): string {
  return String(headers['x-forwarded-for'] ?? '');
}

export function peerOf(socket: Socket): string {
  return peers.get(carrierOf(socket)) ?? normalizeAddress(socket.remoteAddress ?? '');
}

/** Reads the headers of proxies. The headers of every other peer are ignored. */
export class TrustedProxies {
  private readonly networks: CidrSet;
  private readonly trustsUnix: boolean;
  /** A property of requests: a `WeakMap` of every request costs the collector more than the request saves. */
  private readonly client = Symbol('client');

  /** `trusted`: CIDR blocks, addresses, and `unix`. */
  constructor(trusted: readonly string[]) {
    this.networks = new CidrSet(trusted.filter((word) => word !== UNIX_PEER));
    this.trustsUnix = trusted.includes(UNIX_PEER);
  }

  isTrusted(peer: string): boolean {
    return peer === UNIX_PEER ? this.trustsUnix : this.networks.includes(peer);
  }

  clientOf(request: IncomingMessage): Client {
    const of = request as IncomingMessage & Record<symbol, Client | undefined>;
    return (of[this.client] ??= this.read(request));
  }

  private read({ socket, headers }: IncomingMessage): Client {
    const peer = peerOf(socket);
    const own = { isHttps: (socket as Partial<TLSSocket>).encrypted === true, host: headers.host };
    if (!this.isTrusted(peer)) return { address: peer, isProxied: false, ...own };
    const scheme = lastOf(headers['x-forwarded-proto']);
    const host = lastOf(headers['x-forwarded-host']);
    return {
      address: this.farthest(peer, String(headers['x-forwarded-for'] ?? '')),
      isProxied: true,
      isHttps: scheme === 'https' || scheme === 'http' ? scheme === 'https' : own.isHttps,
      host: host !== undefined && HOST.test(host) ? host : own.host,
    };
  }

  /**
   * Each proxy appends its peer, so the list is read from the right, as far as the peers are trusted. At a malformed
   * entry the client is the last known peer.
   */
  private farthest(peer: string, list: string): string {
    let [address, end] = [peer, list.length];
    for (let hops = 0; hops < MOST_HOPS; hops += 1) {
      const comma = end === 0 ? -1 : list.lastIndexOf(',', end - 1);
      const next = addressIn(list.slice(comma + 1, end));
      if (next === undefined) return address;
      address = next;
      if (comma === -1 || !this.networks.includes(next)) return address;
      end = comma;
    }
    return address;
  }
}

/** The address of an entry, which may have a port, and then brackets around IPv6. */
function addressIn(entry: string): string | undefined {
  const text = entry.length > LONGEST_HOP ? '' : entry.trim();
  const [, bracketed] = /^\[([^\]]+)\](?::\d{1,5})?$/.exec(text) ?? [];
  const [, beforePort] = /^([\d.]+):\d{1,5}$/.exec(text) ?? [];
  const address = bracketed ?? beforePort ?? text;
  if (isIP(address) === 0 || (bracketed !== undefined && isIP(address) !== 6)) return undefined;
  return normalizeAddress(address);
}

/** The entry of the proxy that is nearest: a client may have sent the others. */
function lastOf(header: string | string[] | undefined): string | undefined {
  return header === undefined ? undefined : String(header).split(',').at(-1)!.trim().toLowerCase();
}

/** The address of the client, also of a request that another process has forwarded. */
export function clientAddressOf({
  forwardedFor,
  client,
}: Pick<FastifyRequest, 'client'> & Partial<Pick<FastifyRequest, 'forwardedFor'>>): string {
  return forwardedFor ?? client.address;
}
