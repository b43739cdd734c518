import type { IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http2';
import type { Refusal } from './refusal.js';
import type { RequestSecrets } from './request-secrets.js';

/** Fields of one connection, which HTTP/2 does not allow. */
const OF_CONNECTION = [
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
];

export function authorityOf({ ':authority': authority, host }: IncomingHttpHeaders): string | undefined {
  return authority ?? host;
}

export function withValues(
  headers: OutgoingHttpHeaders,
  secrets: RequestSecrets | undefined,
): OutgoingHttpHeaders | Refusal {
  if (!secrets) return headers;
  const head = secrets.head(String(headers[':method']), String(headers[':path']), ownFields(headers));
  if ('code' in head) return head;
  return { ...pseudoFields(headers), ':path': head.path, ...objectOf(head.headers) };
}

export function withValuesOfTrailers(
  headers: OutgoingHttpHeaders,
  secrets: RequestSecrets | undefined,
): OutgoingHttpHeaders | undefined {
  if (!secrets) return headers;
  const head = secrets.trailers(ownFields(headers));
  return 'code' in head ? undefined : objectOf(head.headers);
}

export function withoutEchoes(
  headers: OutgoingHttpHeaders,
  secrets: RequestSecrets | undefined,
): OutgoingHttpHeaders {
  if (!secrets) return headers;
  const fields = ownFields(headers).map(([name, value]): [string, string] => [name, secrets.echo(value)]);
  return { ...pseudoFields(headers), ...objectOf(fields) };
}

function ownFields(headers: OutgoingHttpHeaders): [string, string][] {
  return Object.entries(headers)
    .filter(([name]) => !name.startsWith(':'))
    .flatMap(([name, value = '']) => [value].flat().map((each): [string, string] => [name, String(each)]));
}

/** The mark of fields that must not be indexed stays too. */
function pseudoFields(headers: OutgoingHttpHeaders): OutgoingHttpHeaders {
  const copy = { ...headers };
  for (const name of Object.keys(copy)) if (!name.startsWith(':')) delete copy[name];
  return copy;
}

function objectOf(fields: readonly (readonly [string, string])[]): OutgoingHttpHeaders {
  const headers: OutgoingHttpHeaders = {};
  for (const [name, value] of fields) {
    const known = headers[name];
    headers[name] = known === undefined ? value : [known, value].flat().map(String);
  }
  return headers;
}

export function isRefusal(head: OutgoingHttpHeaders | Refusal): head is Refusal {
  return 'code' in head && 'domain' in head && typeof head.status === 'number';
}

/** The mark of fields that must not be indexed stays. */
export function forwarded(headers: IncomingHttpHeaders): OutgoingHttpHeaders {
  const copy: OutgoingHttpHeaders = { ...headers };
  for (const name of OF_CONNECTION) delete copy[name];
  return copy;
}
