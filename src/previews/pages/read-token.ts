import { ApiError } from '../../http/errors.js';
import type { PreviewRequest } from '../types.js';

const MOST_BYTES = 1_024;
/** A client needs no grant for this request, and holds a connection until its body has come. */
const BODY_MS = 5_000;

/** The token in the body `{"token": "…"}`. Only a script can send JSON, so no form of another page does. */
export async function readToken(request: PreviewRequest): Promise<string> {
  const type = request.headers['content-type'] ?? '';
  if (!/^application\/json\b/i.test(type)) throw new ApiError('unsupported_media_type');
  let text = '';
  let bytes = 0;
  const late = setTimeout(() => request.destroy(new ApiError('request_timeout')), BODY_MS);
  try {
    for await (const chunk of request as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > MOST_BYTES) throw new ApiError('payload_too_large');
      text += chunk.toString('latin1');
    }
  } finally {
    clearTimeout(late);
  }
  try {
    const body = JSON.parse(text) as { token?: unknown } | null;
    if (typeof body?.token === 'string') return body.token;
  } catch {
    throw new ApiError('invalid_json');
  }
  throw new ApiError('invalid_request', 'the body lacks the token', { field: 'token' });
}
