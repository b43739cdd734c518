import { sleep } from '../../../src/lib/sleep.js';

/** Requests of the program that fills a service for pictures. A refusal ends the program with its message. */
export type Api = ReturnType<typeof apiOf>;

export function apiOf(url: string, key: string) {
  async function send(
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
  ): Promise<Record<string, any>> {
    const isText = typeof body === 'string';
    const answer = await fetch(url + path, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        ...(body === undefined || isText ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: isText ? body : JSON.stringify(body) }),
    });
    const text = await answer.text();
    // The machine is busy while dozens of containers start. Nothing was done then.
    if (answer.status === 503) {
      await sleep(1000);
      return send(method, path, body, headers);
    }
    if (!answer.ok) throw new Error(`${method} ${path} was answered ${answer.status}: ${text}`);
    return (text.startsWith('{') || text.startsWith('[') ? JSON.parse(text) : {}) as Record<string, any>;
  }
  return {
    url,
    key,
    get: (path: string) => send('GET', path),
    post: (path: string, body: unknown = {}, headers?: Record<string, string>) =>
      send('POST', path, body, headers),
    put: (path: string, body: unknown, headers?: Record<string, string>) => send('PUT', path, body, headers),
    delete: (path: string) => send('DELETE', path),
  };
}
