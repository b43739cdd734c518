import type { IncomingMessage } from 'node:http';
import { ApiError } from '../http/errors.js';
import type { PreviewHosts } from './host.js';
import { MAX_HEADERS } from './limits.js';
import type { PreviewHost, PreviewRequest } from './types.js';

const FORBIDDEN_METHODS = new Set(['CONNECT', 'TRACE', 'TRACK']);
const CLOSE = { headers: { connection: 'close' } };

/**
 * The preview of a request. Throws an ApiError for a request that another server could read in another way. Otherwise
 * this service would judge one request, and a server in the sandbox would see another.
 */
export function readHost(hosts: PreviewHosts, request: PreviewRequest): PreviewHost {
  const { rawHeaders, method = '' } = request;
  if (rawHeaders.length > 2 * MAX_HEADERS) {
    throw new ApiError('headers_too_large', `a request has at most ${MAX_HEADERS} headers`, null, CLOSE);
  }
  // Node writes every method in upper case, and HTTP/2 lets clients send another.
  if (FORBIDDEN_METHODS.has(method.toUpperCase())) {
    throw new ApiError('not_supported', `previews do not take the method ${method}`, null, CLOSE);
  }
  const named = namedHosts(request);
  if (named.length !== 1) {
    throw new ApiError('invalid_request', 'a request names one host: send one Host header', null, CLOSE);
  }
  const target = request.url ?? '';
  if (!target.startsWith('/') && !(target === '*' && method === 'OPTIONS')) {
    const message = 'the target of a request is a path: send the host in the Host header only';
    throw new ApiError('invalid_request', message, null, CLOSE);
  }
  const host = hosts.read(named[0]);
  if (!host) {
    const message = 'there is no preview with this host name: open the URL that the preview was created with';
    throw new ApiError('misdirected_request', message, null, CLOSE);
  }
  if (request.httpVersionMajor === 1) checkFraming(request as IncomingMessage);
  return host;
}

/** The spellings of the host, each once. A client of HTTP/2 may send `host` beside `:authority`. */
function namedHosts({ rawHeaders, httpVersionMajor }: PreviewRequest): string[] {
  const found: string[] = [];
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]!;
    if (name === ':authority' || (name.length === 4 && name.toLowerCase() === 'host')) {
      found.push(rawHeaders[at + 1]!);
    }
  }
  return httpVersionMajor === 1 ? found : [...new Set(found)];
}

/**
 * Node's parser refuses bad framing, and a length beside chunks. It accepts other codings of the transfer, which a
 * server may take for no body.
 */
function checkFraming({ rawHeaders, headers, httpVersion }: IncomingMessage): void {
  let [lengths, codings] = [0, 0];
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at]!.toLowerCase();
    if (name === 'content-length') lengths += 1;
    if (name === 'transfer-encoding') codings += 1;
  }
  const coding = headers['transfer-encoding'];
  const isOdd = codings > 0 && (coding?.toLowerCase() !== 'chunked' || httpVersion === '1.0');
  if (lengths + codings > 1 || isOdd) {
    const message =
      'the length of the body is not clear: send one Content-Length, or "Transfer-Encoding: chunked"';
    throw new ApiError('invalid_request', message, null, CLOSE);
  }
}
