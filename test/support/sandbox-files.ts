import type { Client } from './client.js';
import { encode } from './volume-files.js';

/** The operations on the files of a sandbox. `address`: its id, or `by-name/` and its name. */
export function filesIn(by: Client, address: string) {
  const base = `/v1/sandboxes/${address}/files`;
  const headers = (path: string | Buffer) => ({ 'x-msb-file-path': encode(path) });
  const authorization = `Bearer ${by.key}`;
  return {
    base,
    put: (path: string, body: string | Buffer | ReadableStream, more: Record<string, string> = {}) =>
      fetch(`${by.url}${base}/content`, {
        method: 'PUT',
        headers: { ...headers(path), authorization, ...more },
        body: body as string,
        ...({ duplex: 'half' } as object),
      }).then(async (response) => ({
        status: response.status,
        replayed: response.headers.get('idempotency-replayed'),
        body: (await response.json()) as any,
      })),
    get: (path: string, signal?: AbortSignal) =>
      fetch(`${by.url}${base}/content`, {
        headers: { ...headers(path), authorization },
        ...(signal ? { signal } : {}),
      }),
    text: async (path: string) =>
      (await fetch(`${by.url}${base}/content`, { headers: { ...headers(path), authorization } })).text(),
    list: (path: string) => by.request('GET', base, { headers: headers(path) }),
    stat: (path: string | Buffer) => by.request('GET', `${base}/stat`, { headers: headers(path) }),
    exists: async (path: string) =>
      (await by.request('GET', `${base}/exists`, { headers: headers(path) })).body.exists as boolean,
    remove: (path: string, more: Record<string, string> = {}) =>
      by.request('DELETE', base, { headers: { ...headers(path), ...more } }),
    mkdir: (path: string) => by.post(`${base}/mkdir`, { path }),
    copy: (from: string, to: string) => by.post(`${base}/copy`, { from, to }),
    rename: (from: string, to: string) => by.post(`${base}/rename`, { from, to }),
  };
}
