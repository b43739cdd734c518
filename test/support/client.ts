import { sleep } from '../../src/lib/sleep.js';
import type { Answer } from './answer.js';
import { expectDocumented } from './openapi.js';

/** How long a request is retried while the service is overloaded, in milliseconds. */
const PATIENCE_MS = 300_000;
/** Tests that give a start this time expect its end. A busy machine may need longer, and the service allows longer. */
const LONG_WAIT_SECS = 120;

interface RequestOptions {
  query?: Record<string, string | number | boolean | string[]> | string;
  body?: unknown;
  headers?: Record<string, string>;
  /** Replaces the client's own key; null sends none. */
  key?: string | null;
  /** Aborts the request. */
  signal?: AbortSignal;
}

export interface Client {
  url: string;
  org: { id: string; name: string; slug: string };
  key: string;
  keyId: string;
  request(method: string, path: string, options?: RequestOptions): Promise<Answer>;
  get(path: string, query?: RequestOptions['query']): Promise<Answer>;
  post(path: string, body?: unknown, query?: RequestOptions['query']): Promise<Answer>;
  patch(path: string, body: unknown): Promise<Answer>;
  delete(path: string): Promise<Answer>;
}

/**
 * On a slow machine a request may time out while it waits for a connection, so it is retried. Tests that stop the
 * database set `patience` to 0: a request answered with 503 may have been executed.
 */
export function makeClient(
  url: string,
  identity: Pick<Client, 'org' | 'key' | 'keyId'>,
  /** `documented`: each answer is checked against openapi.json, which is of the present version. */
  { patience = PATIENCE_MS, documented = true } = {},
): Client {
  async function request(method: string, path: string, options: RequestOptions = {}): Promise<Answer> {
    const deadline = Date.now() + patience;
    for (;;) {
      const answer = await ask(method, path, options);
      if (answer.status !== 503)
        return isEarly(answer, options) ? whenOver(answer, options, deadline) : answer;
      if (Date.now() >= deadline) return answer;
      await sleep(200);
    }
  }

  /** The answer with the sandbox as it is at the end of its start or stop. */
  async function whenOver(answer: Answer, options: RequestOptions, deadline: number): Promise<Answer> {
    const { key, signal } = options;
    const look = { ...(key === undefined ? {} : { key }), ...(signal ? { signal } : {}) };
    while (Date.now() < deadline) {
      const { status, text, body } = await ask('GET', `/v1/sandboxes/${answer.body.id}`, look);
      if (status === 200 && !UNDER_WAY.has(body.status)) return { ...answer, text, body };
      if (status !== 200 && status !== 503) return answer;
      await sleep(200);
    }
    return answer;
  }

  async function ask(method: string, path: string, options: RequestOptions): Promise<Answer> {
    const { query, body, headers = {}, key = identity.key, signal } = options;
    const search = typeof query === 'string' ? query : toSearch(query ?? {});
    const response = await fetch(`${url}${path}${search === '' ? '' : `?${search}`}`, {
      method,
      ...(signal ? { signal } : {}),
      headers: {
        ...(key === null ? {} : { authorization: `Bearer ${key}` }),
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    const type = response.headers.get('content-type') ?? '';
    const text = type === 'text/event-stream' ? await beginningOf(response) : await response.text();
    const answer: Answer = {
      status: response.status,
      headers: response.headers,
      text,
      body: text !== '' && type.startsWith('application/json') ? JSON.parse(text) : undefined,
    };
    // Official SDKs get specifications in a form of their own.
    const isSdk = headers['user-agent']?.startsWith('microsandbox-sdk/') === true;
    if (documented && !isSdk) expectDocumented(method, path, answer);
    return answer;
  }
  return {
    ...identity,
    url,
    request,
    get: (path, query) => request('GET', path, query === undefined ? {} : { query }),
    post: (path, body, query) => request('POST', path, { body, ...(query === undefined ? {} : { query }) }),
    patch: (path, body) => request('PATCH', path, { body }),
    delete: (path) => request('DELETE', path),
  };
}

/** The states of a sandbox that is about to have another one. */
const UNDER_WAY = new Set<unknown>(['starting', 'stopping']);

function isEarly({ status, body }: Answer, { query }: RequestOptions): boolean {
  const waits = typeof query === 'object' && query['wait_timeout'] === LONG_WAIT_SECS;
  return waits && status === 200 && UNDER_WAY.has(body?.status);
}

/** The first chunk of an endless answer. */
async function beginningOf(response: Response): Promise<string> {
  const reader = response.body!.getReader();
  const { value } = await reader.read();
  await reader.cancel();
  return new TextDecoder().decode(value);
}

function toSearch(query: Exclude<RequestOptions['query'], string | undefined>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const item of Array.isArray(value) ? value : [value]) search.append(name, String(item));
  }
  return search.toString();
}
