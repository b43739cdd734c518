import createFetchClient, { type Client, type Middleware } from 'openapi-fetch';
import type { components, paths } from './api.js';

export type { components, operations, paths } from './api.js';

/** The schemas of the API, such as `Schemas['SandboxResponse']`. */
export type Schemas = components['schemas'];

export type SandkeepClient = Client<paths>;

export interface Connection {
  /** The address of the service, such as `https://sandkeep.example.com`. */
  url: string;
  /** The API key, `skp_…`. */
  key: string;
  /** Default: the `fetch` of the platform. */
  fetch?: (request: Request) => Promise<Response>;
}

/** A refusal of the service. */
export class SandkeepError extends Error {
  override readonly name = 'SandkeepError';
  constructor(
    message: string,
    readonly status: number,
    /** The word of the refusal, such as `quota_exceeded`. */
    readonly code: string,
    readonly details: unknown,
    /** The id of the request in the log of the service. */
    readonly requestId: string | null,
    /** The seconds after which a repetition is likely to succeed. */
    readonly retryAfterSecs: number | null,
  ) {
    super(message);
  }
}

/** A client with a method for each verb: `client.GET('/v1/sandboxes')`. A refusal throws a `SandkeepError`. */
export function createClient({ url, key, fetch }: Connection): SandkeepClient {
  const client = createFetchClient<paths>({
    baseUrl: url.replace(/\/+$/, ''),
    // Some answers have a second form, such as CSV.
    headers: { authorization: `Bearer ${key}`, accept: 'application/json' },
    ...(fetch === undefined ? {} : { fetch }),
  });
  client.use(refusals);
  return client;
}

const refusals: Middleware = {
  async onResponse({ response }) {
    if (response.ok || response.status === 304) return;
    throw await readRefusal(response);
  },
};

async function readRefusal(response: Response): Promise<SandkeepError> {
  const { status, headers } = response;
  const text = await response.text();
  const { code, message, details } = readError(text);
  return new SandkeepError(
    message ?? `the server answered ${status}: ${text.slice(0, 200)}`,
    status,
    // A proxy in front of the service has other bodies.
    code ?? 'unknown',
    details,
    headers.get('x-request-id'),
    headers.has('retry-after') ? Number(headers.get('retry-after')) : null,
  );
}

function readError(text: string): { code?: string; message?: string; details?: unknown } {
  try {
    return (JSON.parse(text) as { error?: object }).error ?? {};
  } catch {
    return {};
  }
}

interface Page<T> {
  data: T[];
  next_cursor?: string | null | undefined;
}

/**
 * The entries of a list, page by page: `for await (const event of entries((cursor) => client.GET('/v1/events',
 * { params: { query: { cursor } } })))`.
 */
export async function* entries<T>(
  fetchPage: (cursor: string | undefined) => Promise<{ data?: Page<T> }>,
): AsyncGenerator<T, void, undefined> {
  let cursor: string | undefined;
  do {
    const { data } = await fetchPage(cursor);
    if (data === undefined) return;
    yield* data.data;
    cursor = data.next_cursor ?? undefined;
  } while (cursor !== undefined);
}
