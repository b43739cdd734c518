import { looksLikeTls, readClientHello, type HelloFields } from './client-hello.js';
import { readHttpHead } from './http-head.js';

export const LONGEST_FIRST_BYTES = 16_384;

/** The beginning of a connection, as far as it matters for the policy. */
export type FirstBytes =
  | ({ kind: 'tls' } & HelloFields)
  /** `name`: canonical, or an IP address. */
  | { kind: 'http'; name: string | undefined; isTunnel: boolean }
  | { kind: 'http2' }
  /** Another protocol, or one whose server speaks first. */
  | { kind: 'other' }
  | { kind: 'broken'; protocol: 'tls' | 'http'; reason: string };

const HTTP2 = 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n';
/** A server may take a request line that starts with one of these, whatever follows. */
const METHOD = /^(?:get|head|post|put|delete|options|patch|trace|connect)(?:\s|$)/i;
const LONGEST_METHOD = 64;

/** 'more': these bytes do not tell yet. `isAll`: no further bytes come, or none in time. */
export function classify(bytes: Buffer, isAll: boolean): FirstBytes | 'more' {
  const found = bytes.length === 0 ? 'more' : looksLikeTls(bytes) ? readTls(bytes) : readText(bytes);
  if (found !== 'more' || (!isAll && bytes.length < LONGEST_FIRST_BYTES)) return found;
  const reason = isAll
    ? 'the first bytes of the connection ended, or came too slowly'
    : `the first bytes of the connection are longer than ${LONGEST_FIRST_BYTES}`;
  if (bytes.length === 0) return { kind: 'other' };
  return { kind: 'broken', protocol: looksLikeTls(bytes) ? 'tls' : 'http', reason };
}

function readTls(bytes: Buffer): FirstBytes | 'more' {
  const hello = readClientHello(bytes, LONGEST_FIRST_BYTES);
  if (hello === 'more') return 'more';
  if (hello === 'broken')
    return { kind: 'broken', protocol: 'tls', reason: 'the TLS ClientHello is malformed' };
  return { kind: 'tls', ...hello };
}

function readText(bytes: Buffer): FirstBytes | 'more' {
  const text = bytes.toString('latin1').replace(/^(?:\r?\n)+/, '');
  if (text.startsWith(HTTP2)) return { kind: 'http2' };
  if (HTTP2.startsWith(text)) return 'more';
  // A method is a token, so other protocols are told apart by their first byte that is in none.
  const [token] = /^[\x21-\x7e]*/.exec(text)!;
  const isCut = token.length === text.length || text[token.length] === '\r';
  if (token.length > LONGEST_METHOD) return { kind: 'other' };
  if (isCut && !text.includes('\n')) return 'more';
  if (!isCut && text[token.length] !== ' ' && text[token.length] !== '\t') return { kind: 'other' };
  const end = text.indexOf('\n');
  const line = end === -1 ? text : text.slice(0, end);
  if (!METHOD.test(line.trimStart()) && !/http\//i.test(line)) return end === -1 ? 'more' : { kind: 'other' };
  if (end === -1) return 'more';
  if (!/ HTTP\/1\.[01]\r$/.test(line))
    return {
      kind: 'broken',
      protocol: 'http',
      reason: 'the request line is not one of HTTP/1.0 or HTTP/1.1',
    };
  const head = readHttpHead(bytes);
  if (head === 'more') return 'more';
  return 'broken' in head
    ? { kind: 'broken', protocol: 'http', reason: head.broken }
    : { kind: 'http', name: head.name, isTunnel: head.isTunnel };
}
