import { hash } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { hashOf, isWellFormedKey, makeKey } from '../../access/key-secret.js';
import { GRANT_COOKIE, GRANT_HEADER } from '../types.js';

const BEARER = /^bearer +(\S+)$/i;
const COOKIE_PATTERN = /^[\w-]{43}$/;

/** The token of a link. It has the form of an API key, so that scanners for secrets know it too. */
export const makeToken = makeKey;

/** The cookie that stands for a token in browsers. It does not reveal the token, and both are stored as hashes. */
export function cookieOf(token: string): string {
  return hash('sha256', `sandkeep preview cookie ${token}`, 'buffer').toString('base64url');
}

export function tokenHash(token: string): Buffer | undefined {
  return isWellFormedKey(token) ? hashOf(token) : undefined;
}

/** The hashes of the credentials of a request, each of which may open the preview. */
export function credentialsOf(headers: IncomingHttpHeaders): Buffer[] {
  const header = headers[GRANT_HEADER];
  const bearer = BEARER.exec(headers.authorization ?? '')?.[1];
  const tokens = [typeof header === 'string' ? header : undefined, bearer].map(
    (token) => token && tokenHash(token),
  );
  const cookie = cookieNamed(GRANT_COOKIE, headers.cookie);
  const all = [...tokens, cookie !== undefined && COOKIE_PATTERN.test(cookie) && hashOf(cookie)];
  return all.filter((each) => Buffer.isBuffer(each));
}

/** The value of the first cookie with this name. */
export function cookieNamed(name: string, cookies: string | undefined): string | undefined {
  for (const cookie of cookies?.split(';') ?? []) {
    const [key, value] = cookie.split('=', 2);
    if (key!.trim() === name) return value?.trim();
  }
  return undefined;
}
