import type { IncomingMessage } from 'node:http';
import { valuesOf } from './http1-headers.js';

/** The path for the server. Undefined: the target is neither a path nor a URL, nor `*` of OPTIONS. */
export function pathOf({ method, url = '' }: IncomingMessage): string | undefined {
  if (url.startsWith('/') || (url === '*' && method === 'OPTIONS')) return url;
  const match = /^https?:\/\/[^/?#]*(.*)$/i.exec(url);
  if (!match) return undefined;
  return match[1]!.startsWith('/') ? match[1] : `/${match[1]}`;
}

/** The host of the request. Undefined: it names none, or two that differ. */
export function authorityOf({ url = '', rawHeaders, httpVersionMajor }: IncomingMessage): string | undefined {
  const hosts = valuesOf(rawHeaders, 'host');
  if (hosts.length > 1 || httpVersionMajor !== 1) return undefined;
  const absolute = /^https?:\/\/([^/?#]*)/i.exec(url)?.[1];
  if (absolute !== undefined && hosts[0] !== undefined && absolute.toLowerCase() !== hosts[0].toLowerCase())
    return undefined;
  return hosts[0] ?? absolute;
}

export function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

/** The fields that say how long the body is, as the request has them. */
export function framingOf({ headers, method }: IncomingMessage): [string, string][] {
  if (headers['transfer-encoding'] !== undefined) return [['Transfer-Encoding', 'chunked']];
  if (headers['content-length'] !== undefined) return [['Content-Length', headers['content-length']]];
  // Without it Node would announce a chunked body.
  return takesBody(method!) ? [['Content-Length', '0']] : [];
}

function takesBody(method: string): boolean {
  return !['GET', 'HEAD', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT'].includes(method);
}
