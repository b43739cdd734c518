import { connect as connectTcp, type Socket } from 'node:net';
import { connect as connectTls, type ConnectionOptions, type TLSSocket } from 'node:tls';
import type { Destination } from './destination.js';
import { isVerified, type TrustedAuthorities } from './trusted-authorities.js';

const CONNECT_TIMEOUT_MS = 30_000;
const KEEP_ALIVE_MS = 60_000;
const MOST_SESSIONS = 256;
/** Faults of the network. Every other error of a TLS connection is the answer of a wrong server. */
const NETWORK_ERRORS = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EPIPE',
  'ETIMEDOUT',
]);

/** A connection to the server, open and, for TLS, with its certificate judged. */
export interface Upstream {
  socket: Socket | TLSSocket;
  /** `h2`, `http/1.1`, or another that both speak. Undefined: none was negotiated. */
  protocol: string | undefined;
  /** The certificate of the server is verified for the name. */
  verified: boolean;
}

/** The server is reached, but it is not the one of the name, or does not speak TLS. */
export class UpstreamTlsError extends Error {}

/** Opens connections of one sandbox. Its TLS sessions are not shared with others. */
export class UpstreamConnector {
  private readonly sessions = new Map<string, Buffer>();

  constructor(private readonly trusted: TrustedAuthorities) {}

  /** Throws UpstreamTlsError, or an error of the connection. */
  open(to: Destination, protocols: readonly string[]): Promise<Upstream> {
    let socket: Socket;
    try {
      socket = to.encrypted ? this.startTls(to, protocols) : startClear(to);
    } catch (error) {
      // Authorities of tenants may be no certificates.
      return Promise.reject(new UpstreamTlsError((error as Error).message, { cause: error }));
    }
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => fail(timeoutError()), CONNECT_TIMEOUT_MS);
      const fail = (error: Error) => {
        clearTimeout(timer);
        socket.destroy();
        reject(
          to.encrypted && isOfTls(error) ? new UpstreamTlsError(error.message, { cause: error }) : error,
        );
      };
      const close = () => fail(networkError('the server closed the connection', 'ECONNRESET'));
      socket.once('error', fail).once('close', close);
      socket.once(to.encrypted ? 'secureConnect' : 'connect', () => {
        clearTimeout(timer);
        socket.off('close', close).off('error', fail);
        // From here on its user listens. An error in between must not end the process.
        socket.on('error', () => {});
        socket.setKeepAlive(true, KEEP_ALIVE_MS);
        const { alpnProtocol, authorized = false } = socket as Partial<TLSSocket>;
        resolve({ socket, protocol: alpnProtocol || undefined, verified: authorized });
      });
    });
  }

  private startTls(to: Destination, protocols: readonly string[]): TLSSocket {
    const { tls } = to.sandbox.settings;
    const session = this.sessions.get(keyOf(to));
    // Node knows it, and its types do not.
    const options: ConnectionOptions & { allowHalfOpen: true } = {
      host: to.address,
      port: to.port,
      servername: to.name,
      secureContext: this.trusted.contextFor(tls, to.name),
      ...(protocols.length > 0 && { ALPNProtocols: [...protocols] }),
      ...(session && { session }),
      rejectUnauthorized: isVerified(tls, to.name),
      allowHalfOpen: true,
    };
    const socket = connectTls(options);
    socket.setNoDelay(true);
    // Node does not compare the name again when a session is resumed, so only sessions of verified servers are kept.
    socket.on('session', (ticket: Buffer) => socket.authorized && this.keepSession(to, ticket));
    return socket;
  }

  private keepSession(to: Destination, session: Buffer): void {
    const key = keyOf(to);
    this.sessions.delete(key);
    this.sessions.set(key, session);
    for (const oldest of this.sessions.keys()) {
      if (this.sessions.size <= MOST_SESSIONS) break;
      this.sessions.delete(oldest);
    }
  }
}

function startClear({ address, port }: Destination): Socket {
  return connectTcp({ host: address, port, noDelay: true, allowHalfOpen: true });
}

function keyOf({ name, address, port }: Destination): string {
  return `${name} ${address} ${port}`;
}

function timeoutError(): Error {
  return networkError('the server did not answer in time', 'ETIMEDOUT');
}

function networkError(message: string, code: string): Error {
  return Object.assign(new Error(message), { code });
}

function isOfTls(error: Error): boolean {
  return !NETWORK_ERRORS.has((error as NodeJS.ErrnoException).code ?? '');
}
