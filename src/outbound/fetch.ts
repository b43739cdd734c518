import { reachInTime, type Sender } from './reach.js';
import { send } from './send.js';

/** The connection is closed after a longer answer. */
export const MAX_FETCHED_BYTES = 1_024 * 1_024;

interface Init {
  method?: string;
  headers?: ConstructorParameters<typeof Headers>[0];
  body?: unknown;
  signal?: AbortSignal | null;
}

/**
 * A `fetch` for libraries, which reaches only allowed addresses, follows no redirect, uses no proxy, and reads answers
 * of bounded size in bounded time.
 */
export function makeGuardedFetch(sender: Sender): (url: string, init?: Init) => Promise<Response> {
  return async (target, { method = 'GET', headers, body, signal } = {}) => {
    const url = new URL(target);
    const sent = Object.fromEntries(new Headers(headers));
    return reachInTime(sender, url, signal ?? undefined, async (destination, over) => {
      const answer = await send(url, destination, {
        method: methodOf(method),
        headers: sent,
        ...(body === undefined || body === null ? {} : { body: textOf(body) }),
        signal: over,
      });
      const chunks: Buffer[] = [];
      let length = 0;
      for await (const chunk of answer) {
        length += (chunk as Buffer).length;
        // Leaving the loop closes the connection.
        if (length > MAX_FETCHED_BYTES) throw new Error(`${url.host} sent an answer of more than 1 MiB`);
        chunks.push(chunk as Buffer);
      }
      const status = answer.statusCode!;
      const fields = Object.entries(answer.headersDistinct).flatMap(([name, values = []]) =>
        values.map((value): [string, string] => [name, value]),
      );
      return new Response(hasBody(status) ? Buffer.concat(chunks) : null, { status, headers: fields });
    });
  };
}

function hasBody(status: number): boolean {
  return status !== 204 && status !== 205 && status !== 304;
}

function methodOf(method: string): 'GET' | 'HEAD' | 'POST' {
  if (method === 'GET' || method === 'HEAD' || method === 'POST') return method;
  throw new Error(`the method ${method} is not sent`);
}

function textOf(body: unknown): string {
  if (typeof body === 'string') return body;
  if (body instanceof URLSearchParams) return body.toString();
  throw new Error('only text and forms are sent');
}
