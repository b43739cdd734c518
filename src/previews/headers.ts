import type { IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http';
import { GRANT_HEADER, type PreviewRequest, type PreviewTarget } from './types.js';

/** Names and values in turn, as Node has raw headers. */
export type RawHeaders = string[];

/** The client of a request, and the way of it to this service. */
export interface Sender {
  address: string;
  /** The list of a trusted proxy, and the address of the proxy. Undefined: the client itself is connected. */
  via: { list: string; peer: string } | undefined;
}

/** They concern one connection, and a proxy replaces them. */
const OF_CONNECTION = new Set([
  'connection',
  'content-length',
  'expect',
  'http2-settings',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authorization',
  'proxy-connection',
  'te',
  'transfer-encoding',
  'upgrade',
]);
/** A client could claim another address with them. */
const OF_PROXIES = new Set(['forwarded', 'host', 'x-real-ip', 'x-client-ip', 'true-client-ip', GRANT_HEADER]);
const OF_FORWARDING = /^x-forwarded-/;
/** Browsers compare the prefix `__Host-` in any case. */
const OWN_COOKIE = /^\s*__host-sandkeep-/i;
/** Keys of the API begin so too. A key that was sent by mistake does not reach the sandbox. */
const GRANT_AUTHORIZATION = /^\s*bearer\s+skp_/i;
/**
 * `alt-svc` sends browsers to another port. `strict-transport-security` holds for every port of the host, and outlives
 * the preview. `nel` and `report-to` have browsers send reports about this service.
 */
const NOT_ANSWERED = new Set(['alt-svc', 'nel', 'public-key-pins', 'report-to', 'strict-transport-security']);
/** The directive "cookies" would sign the user out of every other preview of the domain. */
const CLEARED_OF_ORIGIN = new Set(['"cache"', '"storage"', '"executioncontexts"']);

const NO_NAMES: ReadonlySet<string> = new Set();
const NO_TRAILERS = new Set(['authorization', 'cookie', 'content-encoding', 'set-cookie', 'trailer']);

/** The headers for the server in the sandbox, without those of the body and the connection. */
export function requestHeaders(
  { rawHeaders, headers }: Pick<PreviewRequest, 'rawHeaders' | 'headers'>,
  target: PreviewTarget,
  sender: Sender,
): RawHeaders {
  const named = connectionNames(headers.connection);
  const inner = `localhost:${target.port}`;
  const result: RawHeaders = ['Host', target.hostForm === 'sandbox' ? inner : hostOf(target.origin)];
  const cookies: string[] = [];
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const [name, value] = [rawHeaders[at]!, rawHeaders[at + 1]!];
    const lower = name.toLowerCase();
    if (lower.startsWith(':') || OF_CONNECTION.has(lower) || named.has(lower)) continue;
    if (isOfProxies(lower)) continue;
    if (lower === 'authorization' && GRANT_AUTHORIZATION.test(value)) continue;
    if (lower === 'cookie') cookies.push(withoutOwn(value));
    else if (target.hostForm === 'sandbox' && (lower === 'origin' || lower === 'referer')) {
      result.push(name, withOrigin(value, target.origin, `http://${inner}`));
    } else result.push(name, value);
  }
  // HTTP/2 may split the cookies into several headers, and HTTP/1.1 has one.
  const cookie = cookies.filter((text) => text !== '').join('; ');
  if (cookie !== '') result.push('Cookie', cookie);
  addForwarded(result, target.origin, sender);
  return result;
}

/** The headers of the answer for the client, without those of the connection. The length of a body stays. */
export function answerHeaders(
  rawHeaders: readonly string[],
  headers: IncomingHttpHeaders,
  target: PreviewTarget,
): RawHeaders {
  const named = connectionNames(headers.connection);
  const result: RawHeaders = [];
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const [name, value] = [rawHeaders[at]!, rawHeaders[at + 1]!];
    const lower = name.toLowerCase();
    if (lower !== 'content-length' && (OF_CONNECTION.has(lower) || named.has(lower))) continue;
    if (NOT_ANSWERED.has(lower)) continue;
    const kept = answered(lower, value, target);
    if (kept !== undefined) result.push(name, kept);
  }
  // Pages are drafts for a few people: search engines do not list them, and other sites do not learn their addresses.
  if (headers['referrer-policy'] === undefined) result.push('Referrer-Policy', 'same-origin');
  if (headers['x-robots-tag'] === undefined) result.push('X-Robots-Tag', 'noindex');
  return result;
}

/** The fields that may follow a body. A field that frames a message or sets cookies comes too late there. */
export function trailersOf(rawTrailers: readonly string[]): [string, string][] {
  const result: [string, string][] = [];
  for (let at = 0; at < rawTrailers.length; at += 2) {
    const lower = rawTrailers[at]!.toLowerCase();
    const isHeader = OF_CONNECTION.has(lower) || isOfProxies(lower);
    if (!isHeader && !NO_TRAILERS.has(lower)) result.push([rawTrailers[at]!, rawTrailers[at + 1]!]);
  }
  return result;
}

/** As HTTP/2 wants them: names in lower case, and a list for a name that occurs more than once. */
export function asHttp2(raw: RawHeaders): OutgoingHttpHeaders {
  const result: OutgoingHttpHeaders = Object.create(null) as OutgoingHttpHeaders;
  for (let at = 0; at < raw.length; at += 2) {
    const name = raw[at]!.toLowerCase();
    const known = result[name];
    if (known === undefined) result[name] = raw[at + 1]!;
    else if (name === 'set-cookie') result[name] = [known, raw[at + 1]!].flat() as string[];
    // Two values of a header that has one make the answer invalid in HTTP/2; a comma joins the lists.
    else if (!SINGLE.has(name)) result[name] = `${String(known)}, ${raw[at + 1]!}`;
  }
  return result;
}

const SINGLE = new Set([
  'age',
  'content-length',
  'content-location',
  'content-range',
  'content-type',
  'date',
  'etag',
  'expires',
  'last-modified',
  'location',
  'retry-after',
  'server',
]);

function answered(lower: string, value: string, target: PreviewTarget): string | undefined {
  if (lower === 'set-cookie') return hostOnly(value);
  if (lower === 'clear-site-data') {
    const kept = value.split(',').filter((word) => CLEARED_OF_ORIGIN.has(word.trim().toLowerCase()));
    return kept.length === 0 ? undefined : kept.join(',').trim();
  }
  if (target.hostForm === 'sandbox' && (lower === 'location' || lower === 'content-location')) {
    return ['localhost', '127.0.0.1'].reduce(
      (text, name) => withOrigin(text, `http://${name}:${target.port}`, target.origin),
      value,
    );
  }
  return value;
}

/** A cookie for this host alone. Undefined: a cookie that could stand for one of Sandkeep. */
function hostOnly(cookie: string): string | undefined {
  const [pair = '', ...attributes] = cookie.split(';');
  const equals = pair.indexOf('=');
  const name = pair.slice(0, Math.max(equals, 0)).trim();
  // Browsers send a cookie without a name as its value alone, which may look like another cookie.
  if (name === '' || OWN_COOKIE.test(name)) return undefined;
  const kept = attributes.filter((attribute) => attribute.split('=')[0]!.trim().toLowerCase() !== 'domain');
  return [pair, ...kept].join(';');
}

/** Without the cookies of the grant and of the notice. */
function withoutOwn(cookies: string): string {
  const kept = cookies.split(';').filter((pair) => !OWN_COOKIE.test(pair));
  return kept.join(';').trim();
}

function withOrigin(url: string, from: string, to: string): string {
  const rest = url.slice(from.length);
  return url.startsWith(from) && /^([/?#]|$)/.test(rest) ? `${to}${rest}` : url;
}

/** The host and the port of an origin, which `PreviewHosts` has written. `URL` takes a microsecond for it. */
function hostOf(origin: string): string {
  return origin.slice(origin.indexOf('://') + 3);
}

/** The service is the only proxy that the server in the sandbox can know: it replaces everything but trusted lists. */
function addForwarded(result: RawHeaders, origin: string, { address, via }: Sender): void {
  const scheme = origin.slice(0, origin.indexOf(':'));
  const host = hostOf(origin);
  const [, port = scheme === 'https' ? '443' : '80'] = host.split(':', 2);
  const hops = via ? [...(via.list === '' ? [] : [via.list]), via.peer].join(', ') : address;
  const node = address.includes(':') ? `"[${address}]"` : address;
  result.push(
    'X-Forwarded-For',
    hops,
    'X-Forwarded-Proto',
    scheme,
    'X-Forwarded-Host',
    host,
    'X-Forwarded-Port',
    port,
    'Forwarded',
    `for=${node};host="${host}";proto=${scheme}`,
  );
}

/** Servers that pass headers on as variables, as CGI does, give names with underscores the same variable. */
function isOfProxies(lower: string): boolean {
  const name = lower.replaceAll('_', '-');
  return OF_PROXIES.has(name) || OF_FORWARDING.test(name);
}

function connectionNames(connection: string | undefined): ReadonlySet<string> {
  // The header `Keep-Alive` is removed anyway, and none is called `Close`.
  if (connection === undefined || connection === 'keep-alive' || connection === 'close') return NO_NAMES;
  return new Set(connection.split(',').map((name) => name.trim().toLowerCase()));
}
