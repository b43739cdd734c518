import type { FastifyRequest } from 'fastify';
import type { Client } from '../http/client-address.js';
import { ApiError } from '../http/errors.js';

/** A browser names the page that opens the terminal. Other clients name none. */
export function checkTerminalOrigin({ headers, client }: FastifyRequest, allowed: readonly string[]): void {
  const { origin } = headers;
  if (origin === undefined || allowed.includes(origin) || isOf(client, origin)) return;
  throw new ApiError('origin_not_allowed');
}

/** Only pages of the service itself may use the cookie of a session. */
export function checkOwnOrigin({ headers, client }: FastifyRequest): void {
  const { origin } = headers;
  const site = headers['sec-fetch-site'] ?? 'same-origin';
  if ((origin === undefined || isOf(client, origin)) && (site === 'same-origin' || site === 'none')) return;
  throw new ApiError('origin_not_allowed', 'pages of this origin may not use the session of the console');
}

/** Somebody on the network can send a page of the same host without TLS. */
function isOf({ host, isHttps }: Client, origin: string): boolean {
  if (!URL.canParse(origin)) return false;
  const page = new URL(origin);
  return page.host === host && (page.protocol === 'https:' || !isHttps);
}
