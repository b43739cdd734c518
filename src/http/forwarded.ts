import { createHmac, createSecretKey, hash, hkdfSync, timingSafeEqual, type KeyObject } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { ApiError } from './errors.js';
import { prefixOf } from './path-prefix.js';
import type { App } from './route.js';

declare module 'fastify' {
  interface FastifyRequest {
    /** The address of the client of a request that another process has forwarded; null for every other request. */
    forwardedFor: string | null;
  }
}

export const FORWARDED_HEADER = 'x-sandkeep-forwarded';
/** The greatest age of a forwarded request, and the greatest difference between the clocks of two machines. */
const VALID_MS = 30_000;
const SHAPE = /^(\d{1,15})\.([\w-]*)\.([\w-]{43})$/;

/**
 * Seals forwarded requests. A process believes the address of the client only under this seal. The seal covers the
 * method, the path, the credentials, the target and the time, so nobody can use it for another request.
 */
export class ForwardSeal {
  private readonly key: KeyObject;

  /** `secret`: the same in every process of the installation. */
  constructor(secret: Buffer) {
    this.key = createSecretKey(
      Buffer.from(hkdfSync('sha256', secret, '', 'sandkeep forwarded requests', 32)),
    );
  }

  seal(request: IncomingMessage, client: string, target: string, now = Date.now()): string {
    const address = Buffer.from(client).toString('base64url');
    return `${now}.${address}.${this.sign(request, now, client, target).toString('base64url')}`;
  }

  /** The address of the client. Throws ApiError for a seal that is forged or too old. */
  open(request: IncomingMessage, header: string, target: string, now = Date.now()): string {
    const [, at = '', address = '', mac = ''] = SHAPE.exec(header) ?? [];
    const client = Buffer.from(address, 'base64url').toString();
    const expected = this.sign(request, Number(at), client, target);
    const given = Buffer.from(mac, 'base64url');
    if (given.length !== expected.length || !timingSafeEqual(given, expected)) {
      throw new ApiError(
        'invalid_request',
        `the header ${FORWARDED_HEADER} is not valid: only processes of the service send it`,
      );
    }
    if (Math.abs(now - Number(at)) > VALID_MS) {
      const cause = new Error(
        'a forwarded request is too old or too new: compare the clocks of the machines',
      );
      throw new ApiError('not_ready', 'the request was forwarded too slowly: try again', null, {
        cause,
        headers: { 'retry-after': '5' },
      });
    }
    return client;
  }

  private sign(request: IncomingMessage, at: number, client: string, target: string): Buffer {
    const { method, url, headers } = request;
    // Browsers send their credentials in the list of subprotocols.
    const credentials = [headers.authorization, headers['sec-websocket-protocol'], headers.cookie].map(
      (text) => hash('sha256', text ?? '', 'hex'),
    );
    const text = JSON.stringify([method, prefixOf(request) + url, at, client, target, ...credentials]);
    return createHmac('sha256', this.key).update(text).digest();
  }
}

/** Finds the client of forwarded requests, before they are authenticated. */
export function readForwarded(app: App, seal: ForwardSeal, targetOf: () => string): void {
  app.decorateRequest('forwardedFor', null);
  app.addHook('onRequest', (request, _reply, done) => {
    const header = request.headers[FORWARDED_HEADER];
    if (header !== undefined) request.forwardedFor = seal.open(request.raw, String(header), targetOf());
    done();
  });
}

/** For a process without the role of the API. */
export function refuseClients(app: App): void {
  app.addHook('onRequest', (request, _reply, done) => {
    if (request.forwardedFor !== null) return done();
    done(
      new ApiError(
        'route_not_found',
        'this process does background work only: send the request to one with --role api or both',
      ),
    );
  });
}
