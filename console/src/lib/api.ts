import { BASE_PATH } from './base';
import type { ErrorResponse, Operations } from './api-types';
import { csrfToken, signedOut } from './session';

/** A refusal of the service, or a request that did not reach it (`status` 0). */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly details: Record<string, unknown>,
    readonly requestId: string | null,
    readonly retryAfter: number | null,
  ) {
    super(message);
  }
}

type Operation = keyof Operations;
type Query = Record<string, string | number | boolean | readonly string[] | undefined>;

interface CallOptions<O extends Operation> {
  path?: Operations[O]['path'];
  query?: { [K in keyof Operations[O]['query']]?: Operations[O]['query'][K] | undefined };
  body?: Operations[O]['body'];
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
}

/** Calls an operation of openapi.json. */
export async function call<O extends Operation>(
  operation: O,
  options: CallOptions<O> = {},
): Promise<Operations[O]['answer']> {
  const answer = await send(operation, options);
  const text = await answer.text();
  return (text === '' ? undefined : JSON.parse(text)) as Operations[O]['answer'];
}

/** Calls an operation whose answer is not JSON. The caller reads the body. */
function send<O extends Operation>(operation: O, options: CallOptions<O> = {}): Promise<Response> {
  const [method, template] = operation.split(' ') as [string, string];
  const { body, headers, signal } = options;
  return request(addressOf(template, options.path ?? {}, options.query ?? {}), {
    method,
    headers: { ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    ...(signal === undefined ? {} : { signal }),
  });
}

/** A request with the session's cookie and, for a change, its token. Throws a `Problem` unless the answer is 2xx. */
export async function request(address: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  const isRead = init.method === undefined || init.method === 'GET' || init.method === 'HEAD';
  const token = csrfToken();
  if (!isRead && token !== undefined) headers.set('x-csrf-token', token);
  const send = () => fetch(BASE_PATH + address, { ...init, headers, credentials: 'same-origin' });
  // A browser fails all requests when the network of its machine changes. Only reads are repeated: a change may have
  // been made.
  const answer = await send()
    .catch((error: unknown) => {
      if (isAbort(error) || !isRead) throw error;
      return send();
    })
    .catch((error: unknown) => {
      if (isAbort(error)) throw error;
      throw new Problem(0, 'unreachable', 'The service does not answer.', {}, null, null);
    });
  if (answer.ok) return answer;
  const problem = await problemOf(answer);
  if (answer.status === 401 && problem.code !== 'invalid_ticket') signedOut();
  throw problem;
}

const isAbort = (error: unknown) => error instanceof DOMException && error.name === 'AbortError';

export function addressOf(template: string, path: object, query: object): string {
  const values = path as Record<string, unknown>;
  const address = template.replaceAll(/\{(\w+)\}/g, (_, name: string) =>
    encodeURIComponent(String(values[name])),
  );
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query as Query)) {
    for (const item of [value ?? []].flat()) search.append(name, String(item));
  }
  return search.size === 0 ? address : `${address}?${search}`;
}

async function problemOf(answer: Response): Promise<Problem> {
  const requestId = answer.headers.get('x-request-id');
  const retryAfter = Number(answer.headers.get('retry-after')) || null;
  try {
    const { error } = (await answer.json()) as ErrorResponse;
    return new Problem(answer.status, error.code, error.message, error.details ?? {}, requestId, retryAfter);
  } catch {
    const message = `The answer was ${answer.status}, without a reason.`;
    return new Problem(answer.status, 'unknown', message, {}, requestId, retryAfter);
  }
}
