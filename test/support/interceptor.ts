import { once } from 'node:events';
import { createServer, connect, type AddressInfo, type Server, type Socket } from 'node:net';
import { generateKeyPairSync } from 'node:crypto';
import { connect as connectTls, createSecureContext, type TLSSocket } from 'node:tls';
import { onTestFinished } from 'vitest';
import type { Destination } from '../../src/gateway/intercept/destination.js';
import { makeAuthority, makeLeaf, openAuthority } from '../../src/gateway/intercept/certificate.js';
import { Interceptor } from '../../src/gateway/intercept/intercept.js';
import type { Denial, GatedSecret, SandboxSettings, TlsSettings } from '../../src/gateway/protocol.js';
import { SandboxTable } from '../../src/gateway/sandbox.js';

export const NAME = 'api.example.com';

/** Signs the certificates of servers. */
const SERVER_AUTHORITY = makeAuthority('of servers');
/** Signs those that the gateway shows. */
export const GATEWAY_AUTHORITY = makeAuthority('of the gateway');

const key = generateKeyPairSync('ec', { namedCurve: 'P-256' });

/** The key and certificate of a server. */
export function identity(name = NAME, authority = SERVER_AUTHORITY): { cert: string; key: string } {
  return {
    cert: makeLeaf(openAuthority(authority), key.publicKey, name, 24),
    key: key.privateKey.export({ type: 'pkcs8', format: 'pem' }) as string,
  };
}

const TLS: TlsSettings = {
  enabled: true,
  ports: [443],
  bypass: [],
  verifyUpstream: true,
  scopedVerify: [],
  authorities: [{ pem: SERVER_AUTHORITY.certificate }],
  blockQuic: true,
  cacheCapacity: 1_000,
  validityHours: 24,
};

export const SECRET: GatedSecret = {
  name: 'TOKEN',
  placeholder: '$MSB_TOKEN',
  value: 'canary-value-of-the-secret',
  allowedHosts: [{ type: 'exact', value: NAME }],
  passthroughHosts: [],
  places: { headers: true, headerFields: [], basicAuth: true, query: true, body: true },
  onViolation: 'block_and_log',
  requireTlsIdentity: true,
};

export interface Given {
  /** The server listens there. */
  port: number;
  encrypted?: boolean;
  tls?: Partial<TlsSettings>;
  secrets?: GatedSecret[];
  name?: string;
  /** The sandbox has the address as an answer for the name. Default: true. */
  resolved?: boolean;
  protocols?: readonly string[];
}

export interface Gate {
  /** Gives the sandbox other settings. */
  change(given: Partial<Given>): void;
  denials: Denial[];
  flow: { sent: number; received: number; secrets: string[]; ends: number };
  /** A TLS connection through the gateway that is verified as a sandbox does. */
  tls(protocols?: string[], session?: Buffer): Promise<TLSSocket>;
  tcp(): Promise<Socket>;
}

export function settingsOf({ tls, secrets = [] }: Pick<Given, 'tls' | 'secrets'>): SandboxSettings {
  return {
    id: 'sandbox',
    orgId: 'org',
    address: '127.0.0.1',
    policy: { default_egress: 'allow', default_ingress: 'deny', rules: [] },
    surroundings: { hosts: [], resolvers: [], neighbours: [], openableGroups: [] },
    strict: true,
    dns: { nameservers: [], queryTimeoutMs: 1_000, rebindProtection: true },
    tls: { ...TLS, ...tls },
    secrets,
  };
}

/** A listener that hands each connection to the gateway's forwarder, for a server on loopback. */
export async function openGate(given: Given): Promise<Gate> {
  const { port, encrypted = true, name = NAME, resolved = true, protocols } = given;
  const denials: Denial[] = [];
  const flow = { sent: 0, received: 0, secrets: [] as string[], ends: 0 };
  const table = new SandboxTable();
  const interceptor = new Interceptor({ denials: { add: (denial) => denials.push(denial) }, table });
  interceptor.setAuthority(GATEWAY_AUTHORITY);
  const sandbox = table.set(settingsOf(given));
  if (resolved) sandbox.bindings.bind(name, ['127.0.0.1'], 600);
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) => {
    const to: Destination = {
      sandbox,
      name,
      address: '127.0.0.1',
      port,
      encrypted,
      ...(protocols && { protocols }),
      flow: {
        sent: (bytes) => void (flow.sent += bytes),
        received: (bytes) => void (flow.received += bytes),
        usedSecret: (secret) => flow.secrets.push(secret),
        end: () => void (flow.ends += 1),
      },
    };
    interceptor.handle(socket, to);
  });
  const own = await listen(server);
  const tcp = async () => {
    const socket = connect({ port: own, host: '127.0.0.1', allowHalfOpen: true });
    onTestFinished(() => void socket.destroy());
    await once(socket, 'connect');
    return socket;
  };
  const tls = async (offered?: string[], session?: Buffer) => {
    const socket = connectTls({
      port: own,
      host: '127.0.0.1',
      servername: name,
      secureContext: createSecureContext({ ca: GATEWAY_AUTHORITY.certificate }),
      ...(offered && { ALPNProtocols: offered }),
      ...(session && { session }),
    });
    onTestFinished(() => void socket.destroy());
    await once(socket, 'secureConnect');
    return socket;
  };
  const change = (changed: Partial<Given>) => void table.set(settingsOf({ ...given, ...changed }));
  return { change, denials, flow, tls, tcp };
}

/** On loopback, until the end of the test. Returns its port. */
export async function listen(server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return (server.address() as AddressInfo).port;
}
