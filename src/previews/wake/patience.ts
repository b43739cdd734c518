import type { IncomingHttpHeaders } from 'node:http';
import { waitOf } from '../../http/prefer.js';
import type { PreviewRequest } from '../types.js';

const LONGEST_MS = 60_000;
/** Clients have time-outs of their own, of a minute or less. */
const UNASKED_MS = 30_000;
const SAFE = new Set(['GET', 'HEAD', 'OPTIONS']);

/**
 * How long a request waits for a start, in milliseconds. A client that changes something should not send it twice, and
 * few clients of WebSockets read a refusal. Undefined: the request gets its answer at once.
 */
export function patienceOf({ method = 'GET', headers }: PreviewRequest): number | undefined {
  const wanted = waitOf(headers['prefer']);
  if (wanted !== undefined) return Math.min(wanted * 1_000, LONGEST_MS);
  if (!SAFE.has(method) || headers.upgrade !== undefined || hasBody(headers)) return UNASKED_MS;
  return undefined;
}

function hasBody(headers: IncomingHttpHeaders): boolean {
  const length = headers['content-length'];
  return headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0');
}

/** Whether a browser shows the answer as a page. Old browsers send no `Sec-Fetch-Mode`. */
export function isVisit({ headers }: PreviewRequest): boolean {
  const mode = headers['sec-fetch-mode'];
  return mode === undefined ? headers.accept?.includes('text/html') === true : mode === 'navigate';
}

/** Whether a page sent the request by itself. Programs send no such header, and scripts cannot remove it. */
export function isOfOpenPage({ headers }: PreviewRequest): boolean {
  const mode = headers['sec-fetch-mode'];
  return mode !== undefined && mode !== 'navigate';
}
