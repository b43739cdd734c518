import { createHmac, timingSafeEqual } from 'node:crypto';
import type { FastifyRequest } from 'fastify';
import { ApiError } from '../http/errors.js';
import { wantsWebSocket } from '../http/upgrade.js';
import { tokenKind } from '../lib/token.js';
import type { Settings } from '../settings.js';
import { checkOwnOrigin } from './origin.js';

declare module 'fastify' {
  interface FastifyRequest {
    /** The session of a request that was authenticated by a cookie; null for every other request. */
    session: Session | null;
  }
}

export interface Session {
  hash: Buffer;
  csrfToken: string;
  expiresAt: string;
}

const NAME = 'sandkeep_session';
const CSRF_HEADER = 'x-csrf-token';

/** The token of a session that a key opened. */
export const SESSION_TOKEN = tokenKind('sks_');

export class SessionCookies {
  private readonly secureName: string;
  private readonly path: string;

  constructor(
    { basePath }: Pick<Settings, 'basePath'>,
    private readonly name = NAME,
  ) {
    this.path = basePath ?? '/';
    // Browsers accept the first name only from the host itself, over HTTPS and for every path, the second over HTTPS.
    this.secureName = `${basePath === undefined ? '__Host-' : '__Secure-'}${name}`;
  }

  /**
   * The value of a session cookie, if the request has exactly one. A WebSocket takes no cookie: browsers open one from
   * any page.
   */
  tokenOf(request: FastifyRequest): string | undefined {
    const { cookie } = request.headers;
    if (cookie === undefined || wantsWebSocket(request.raw)) return undefined;
    const pairs = cookie.split(';').map((pair) => pair.trim());
    const valuesOf = (name: string) => pairs.filter((pair) => pair.startsWith(`${name}=`));
    // A page of another host could have set the name without the prefix.
    const name = isHttps(request) || valuesOf(this.secureName).length > 0 ? this.secureName : this.name;
    const [value, ...others] = valuesOf(name);
    return value === undefined || others.length > 0 ? undefined : value.slice(name.length + 1);
  }

  /**
   * The cookie that gives a token to the browser for some seconds. `isPublicHttps`: browsers reach the service over
   * HTTPS, whatever the request says. A navigation names no origin.
   */
  give(request: FastifyRequest, token: string, maxAgeSecs: number, isPublicHttps = false): string {
    return isPublicHttps || isHttps(request)
      ? `${this.secureName}=${token}; ${this.attributes(maxAgeSecs)}; Secure`
      : `${this.name}=${token}; ${this.attributes(maxAgeSecs)}`;
  }

  /** The cookies that remove it from the browser, under each name. */
  clear(): string[] {
    return [`${this.name}=; ${this.attributes(0)}`, `${this.secureName}=; ${this.attributes(0)}; Secure`];
  }

  private attributes(maxAgeSecs: number): string {
    return `Path=${this.path}; HttpOnly; SameSite=Strict; Max-Age=${maxAgeSecs}`;
  }
}

/** Without a trusted proxy, the origin of the page tells. A client that lies about it only gets the stricter cookie. */
function isHttps({ headers, client }: FastifyRequest): boolean {
  return client.isHttps || headers.origin === `https://${client.host}`;
}

export function csrfTokenOf(sessionToken: string): string {
  return createHmac('sha256', sessionToken).update('csrf token').digest('base64url');
}

/** Refuses a request by cookie that a page of another origin may have made. */
export function checkCsrf(request: FastifyRequest, expected: string): void {
  // The process that received the request has checked it, and knows the host that the client named.
  if (request.forwardedFor === null) checkOwnOrigin(request);
  if (request.method === 'GET' || request.method === 'HEAD') return;
  const given = Buffer.from(String(request.headers[CSRF_HEADER] ?? ''));
  const wanted = Buffer.from(expected);
  if (given.length !== wanted.length || !timingSafeEqual(given, wanted)) {
    throw new ApiError('invalid_csrf_token');
  }
}

export function invalidSession(): ApiError {
  return new ApiError('invalid_session', undefined, null, { headers: { 'www-authenticate': 'Bearer' } });
}
