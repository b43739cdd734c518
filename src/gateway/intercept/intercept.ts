import type { Socket } from 'node:net';
import { TLSSocket, type SecureContext } from 'node:tls';
import type { Denials } from '../denials.js';
import type { Authority } from '../protocol.js';
import type { GatedSandbox, SandboxTable } from '../sandbox.js';
import { Connection, joinSides, type Sides } from './connection.js';
import type { Destination } from './destination.js';
import { readClearProtocol } from './first-clear-bytes.js';
import { Http1Forwarder } from './http1.js';
import { serveHttp2 } from './http2.js';
import { LeafCertificates } from './leaf-certificates.js';
import { hasSecretFor, needsDecryption } from './needed.js';
import { HANDSHAKES_MS, SharedWork } from './shared-work.js';
import { TrustedAuthorities } from './trusted-authorities.js';
import { UpstreamConnector, UpstreamTlsError, type Upstream } from './upstream.js';
import { answerWithoutServer } from './without-server.js';

const HANDSHAKE_MS = 10_000;
const HTTP_PROTOCOLS = new Set(['h2', 'http/1.1']);

export interface InterceptorParts {
  denials: Pick<Denials, 'add'>;
  /** The sandboxes with their latest settings. Default: those of the connections. */
  table?: Pick<SandboxTable, 'byIdOf'>;
  /** Default: the authorities of the machine. */
  trusted?: TrustedAuthorities;
}

/** Forwards connections of sandboxes request by request: TLS that is decrypted, and clear HTTP. */
export class Interceptor {
  private readonly leaves = new LeafCertificates();
  private readonly connectors = new WeakMap<GatedSandbox, UpstreamConnector>();
  private readonly trusted: TrustedAuthorities;
  private readonly http1 = new Http1Forwarder();
  private readonly work = new SharedWork();

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
    const connection = new Connection(socket, to, this.parts.denials, this.work, (id) =>
      this.parts.table?.byIdOf(id),
    );
    socket.on('error', () => {});
    this.forward(socket, connection).catch(() => connection.reset());
  }

  private async forward(socket: Socket, connection: Connection): Promise<void> {
    const { to } = connection;
    if (!to.encrypted) {
      const upstream = await this.connect(connection, socket, []);
      return this.serve({ connection, client: socket, upstream });
    }
    await connection.work.charge(connection.orgId, HANDSHAKES_MS);
    if (socket.destroyed) return;
    const hasSecret = hasSecretFor(connection.secrets, to.name);
    // A protocol that the gateway does not read could take a secret nowhere.
    const offered = (to.protocols ?? []).filter((each) => !hasSecret || HTTP_PROTOCOLS.has(each));
    const leaf = this.leaves.contextFor(to.sandbox, to.name);
    // Both take milliseconds. The server decides which protocol the client gets.
    const [context, upstream] = await Promise.allSettled([leaf, this.connect(connection, socket, offered)]);
    if (context.status === 'rejected') return connection.reset();
    if (!context.value) {
      const reason = 'the sandbox asks for too many new names: open fewer connections to new names at a time';
      return connection.refuse(reason);
    }
    if (upstream.status === 'rejected') {
      if (!(upstream.reason instanceof UpstreamTlsError)) return connection.reset();
      const spoken = offered.find((each) => HTTP_PROTOCOLS.has(each));
      return answerWithoutServer(await accept(socket, context.value, spoken), connection, upstream.reason);
    }
    const client = await accept(socket, context.value, upstream.value.protocol);
    await this.serve({ connection, client, upstream: upstream.value });
  }

  private async serve(sides: Sides): Promise<void> {
    const { connection, client, upstream } = sides;
    const { to } = connection;
    const hasSecret = hasSecretFor(connection.secrets, to.name);
    const protocol = upstream.protocol ?? (await readClearProtocol(client, !hasSecret));
    if (client.destroyed) return;
    if (protocol === 'http/1.1') return this.http1.serve(sides);
    if (protocol === 'h2') return serveHttp2(sides);
    if (!hasSecret) return joinSides(client, upstream.socket);
    connection.refuse(`a connection to ${to.name}, which has a secret, must be HTTP`);
  }

  private async connect({ to }: Connection, socket: Socket, protocols: readonly string[]): Promise<Upstream> {
    const connector = this.connectors.get(to.sandbox) ?? new UpstreamConnector(this.trusted);
    this.connectors.set(to.sandbox, connector);
    const begin = performance.now();
    const opened = connector.open(to, protocols);
    // The first connection with authorities of a tenant takes some 20 ms. The next handshake waits for it.
    void this.work.charge(to.sandbox.settings.orgId, performance.now() - begin);
    const upstream = await opened;
    if (socket.destroyed) upstream.socket.destroy();
    else socket.once('close', () => upstream.socket.destroy());
    return upstream;
  }
}

/** The handshake with the client, which gets this protocol. */
function accept(
  socket: Socket,
  secureContext: SecureContext,
  protocol: string | undefined,
): Promise<TLSSocket> {
  const client = new TLSSocket(socket, {
    isServer: true,
    secureContext,
    ...(protocol !== undefined && { ALPNProtocols: [protocol] }),
  });
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => fail(new Error('the client did not finish its handshake')), HANDSHAKE_MS);
    const fail = (error = new Error('the client closed the connection')) => {
      clearTimeout(timer);
      reject(error);
    };
    const close = () => fail();
    client.on('error', fail).on('close', close);
    client.once('secure', () => {
      clearTimeout(timer);
      client.off('close', close);
      // Servers of Node set it. HTTP/2 waits for it.
      Object.assign(client, { secureConnecting: false });
      resolve(client);
    });
  });
}
