/**
 * Finds the host of the first HTTP/1 request (RFC 9112), to decide about its connection. It accepts only heads that
 * every server understands in one way. The forwarder parses the request again, and checks that each has this host.
 */
import { isIPv4, isIPv6 } from 'node:net';
import { canonicalName } from '../../network-policy/domains.js';

const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const REQUEST_LINE = /^([^ ]+) ([\x21-\x7e\x80-\xff]+) HTTP\/1\.([01])$/;
const FIELD_LINE = /^([^:]*):[ \t]*(.*)$/;
const ABSOLUTE = /^https?:\/\/([^/?#]*)([/?#].*)?$/i;

export type HttpHead =
  /** `name`: canonical, or an IP address. Absent: the request names none. */
  { name: string | undefined; isTunnel: boolean } | 'more' | { broken: string };

export function readHttpHead(bytes: Buffer): HttpHead {
  const text = bytes.toString('latin1');
  const start = /^(?:\r\n)*/.exec(text)![0].length;
  const end = text.indexOf('\r\n\r\n', start);
  if (end === -1) return text.slice(start).includes('\n\n') ? { broken: 'a line ends without CR' } : 'more';
  const head = text.slice(start, end);
  if (/[^\t\r\n\x20-\x7e\x80-\xff]/.test(head)) return { broken: 'the head has a control character' };
  const [requestLine = '', ...fields] = head.split('\r\n');
  if (/[\r\n]/.test(requestLine + fields.join(''))) return { broken: 'a line ends without CR LF' };
  const [, method, target, minor] = REQUEST_LINE.exec(requestLine) ?? [];
  if (method === undefined || target === undefined || !TOKEN.test(method))
    return { broken: 'the request line is not one of HTTP/1.0 or HTTP/1.1' };
  const hosts: string[] = [];
  for (const field of fields) {
    const [, name = '', value = ''] = FIELD_LINE.exec(field) ?? [];
    // A folded line begins with a space, which is in no token.
    if (!TOKEN.test(name)) return { broken: 'a header line is folded, or its name is not a token' };
    if (name.toLowerCase() === 'host') hosts.push(withoutSpaceAtEnd(value));
  }
  return nameIn({ method, target, isOld: minor === '0', hosts });
}

/** In linear time. */
function withoutSpaceAtEnd(value: string): string {
  let end = value.length;
  while (value[end - 1] === ' ' || value[end - 1] === '\t') end -= 1;
  return value.slice(0, end);
}

function nameIn(request: { method: string; target: string; isOld: boolean; hosts: string[] }): HttpHead {
  const { method, target, isOld, hosts } = request;
  if (hosts.length > 1) return { broken: 'the request has two Host headers' };
  const [host] = hosts;
  if (host === undefined && !isOld) return { broken: 'the request has no Host header' };
  const named = host === undefined || host === '' ? { name: undefined } : readHost(host);
  if (!named) return { broken: 'the Host header is no host' };
  if (method.toUpperCase() === 'CONNECT') {
    const far = readHost(target);
    return far ? { name: far.name, isTunnel: true } : { broken: 'the target of CONNECT is no host' };
  }
  if (target.startsWith('/') || target === '*') return { name: named.name, isTunnel: false };
  const authority = ABSOLUTE.exec(target)?.[1];
  const absolute = authority === undefined ? undefined : readHost(authority);
  if (!absolute) return { broken: 'the target is neither a path nor a URL' };
  if (named.name !== undefined && named.name !== absolute.name)
    return { broken: 'the target and the Host header name two hosts' };
  return { name: absolute.name, isTunnel: false };
}

/** Reads `host` or `host:port`. The host is canonical. */
export function readHost(text: string): { name: string; port: number | undefined } | undefined {
  const [, v6, plain, digits] = /^(?:\[([0-9A-Fa-f:.]+)\]|([^:[\]@]+))(?::([0-9]{1,5}))?$/.exec(text) ?? [];
  const name = v6 !== undefined ? (isIPv6(v6) ? v6.toLowerCase() : undefined) : nameOrAddress(plain);
  const port = digits === undefined ? undefined : Number(digits);
  return name === undefined || (port ?? 0) > 65_535 ? undefined : { name, port };
}

function nameOrAddress(text: string | undefined): string | undefined {
  if (text === undefined || /[^\x21-\x7e]/.test(text)) return undefined;
  return isIPv4(text) ? text : canonicalName(text);
}
