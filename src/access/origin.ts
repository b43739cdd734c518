import type { FastifyRequest } from 'fastify';
import { ApiError } from '../http/errors.js';

/** A browser names the page that opens the terminal. Other clients name none. */
export function checkTerminalOrigin({ headers }: FastifyRequest, allowed: readonly string[]): void {
  const { origin, host } = headers;
  if (origin === undefined || allowed.includes(origin) || isOf(host, origin)) return;
  throw new ApiError('origin_not_allowed');
}

/** Only pages of the service itself may use the cookie of a session. */
export function checkOwnOrigin({ headers }: FastifyRequest): void {
  const { origin, host } = headers;
  const site = headers['sec-fetch-site'] ?? 'same-origin';
  if ((origin === undefined || isOf(host, origin)) && (site === 'same-origin' || site === 'none')) return;
  throw new ApiError('origin_not_allowed', 'pages of this origin may not use the session of the console');
}

function isOf(host: string | undefined, origin: string): boolean {
  return URL.canParse(origin) && new URL(origin).host === host;
}
