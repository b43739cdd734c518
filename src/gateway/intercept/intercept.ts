import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Denials } from '../denials.js';
import type { Authority } from '../protocol.js';
import type { GatedSandbox } from '../sandbox.js';
import { Connection } from './connection.js';
import type { Destination } from './destination.js';
import { Http1Forwarder } from './http1.js';
import { LeafCertificates } from './leaf-certificates.js';
import { needsDecryption } from './needed.js';
import { TrustedAuthorities } from './trusted-authorities.js';
import { UpstreamConnector, type Upstream } from './upstream.js';

const HANDSHAKE_MS = 10_000;

export interface InterceptorParts {
  denials: Pick<Denials, 'add'>;
  /** Default: the authorities of the machine. */
  trusted?: TrustedAuthorities;
}

/** Forwards connections of sandboxes request by request: TLS that is decrypted, and clear HTTP. */
export class Interceptor {
  private readonly leaves = new LeafCertificates();
  private readonly connectors = new WeakMap<GatedSandbox, UpstreamConnector>();
  private readonly trusted: TrustedAuthorities;
  private readonly http1 = new Http1Forwarder();

  constructor(private readonly parts: InterceptorParts) {
    this.trusted = parts.trusted ?? new TrustedAuthorities();
  }

  setAuthority(authority: Authority): void {
    this.leaves.setAuthority(authority);
  }

  isNeeded(sandbox: GatedSandbox, name: string, port: number): boolean {
    return needsDecryption(sandbox, name, port);
  }

  /** The socket is paused, and has its first bytes again. */
  handle(socket: Socket, to: Destination): void {
    const connection = new Connection(socket, to, this.parts.denials);
    socket.on('error', () => {});
    this.forward(socket, connection).catch(() => connection.reset());
  }

  private async forward(socket: Socket, connection: Connection): Promise<void> {
    const { to } = connection;
    if (!to.encrypted) {
      const upstream = await this.connect(to, []);
      socket.once('close', () => upstream.socket.destroy());
      return this.http1.serve({ connection, client: socket, upstream });
    }
    // Both take milliseconds. The server decides which protocol the client gets.
    const leaf = this.leaves.contextFor(to.sandbox, to.name).catch(() => undefined);
    const upstream = await this.connect(to, to.protocols ?? []);
    socket.once('close', () => upstream.socket.destroy());
    const context = await leaf;
    if (!context || socket.destroyed) return connection.reset();
    const { protocol } = upstream;
    const client = new TLSSocket(socket, {
      isServer: true,
      secureContext: context,
      allowHalfOpen: true,
      ...(protocol !== undefined && { ALPNProtocols: [protocol] }),
    } as ConstructorParameters<typeof TLSSocket>[1]);
    await handshake(client);
    this.http1.serve({ connection, client, upstream });
  }

  private connect(to: Destination, protocols: readonly string[]): Promise<Upstream> {
    const connector = this.connectors.get(to.sandbox) ?? new UpstreamConnector(this.trusted);
    this.connectors.set(to.sandbox, connector);
    return connector.open(to, protocols);
  }
}

function handshake(client: TLSSocket): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(
      () => reject(new Error('the client did not finish its handshake')),
      HANDSHAKE_MS,
    );
    const fail = (error?: Error) => {
      clearTimeout(timer);
      reject(error ?? new Error('the client closed the connection'));
    };
    client.on('error', fail).on('close', () => fail());
    client.once('secure', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
