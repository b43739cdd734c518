import type { Answer } from './answer.js';
import type { Client } from './client.js';
import type { TestService } from './service.js';

export const encode = (path: string | Buffer) => Buffer.from(path).toString('base64url');
export const codeOf = ({ status, body }: Pick<Answer, 'status' | 'body'>) => [status, body?.error?.code];

let made = 0;
/** A new volume, its directory, and the operations on its files. */
export async function makeVolume(service: TestService, client: Client, more: Record<string, unknown> = {}) {
  made += 1;
  const { body } = await client.post('/v1/volumes', { name: `volume-${made}`, ...more });
  const data = await service.ctx.volumes.ensure(client.org.id, body.id);
  return { id: body.id as string, data, ...filesOf(client, body.id) };
}

/** The operations on the files of a volume. */
export function filesOf(by: Client, id: string) {
  const base = `/v1/volumes/${id}/files`;
  const headers = (path: string | Buffer) => ({ 'x-msb-file-path': encode(path) });
  const put = (path: string, body: string | Buffer | ReadableStream) =>
    fetch(`${by.url}${base}/content`, {
      method: 'PUT',
      headers: { ...headers(path), authorization: `Bearer ${by.key}` },
      body: body as string,
      ...({ duplex: 'half' } as object),
    }).then(async (response) => ({ status: response.status, body: (await response.json()) as any }));
  const get = (path: string) =>
    fetch(`${by.url}${base}/content`, {
      headers: { ...headers(path), authorization: `Bearer ${by.key}` },
    });
  return {
    base,
    put,
    get,
    text: async (path: string) => (await get(path)).text(),
    list: (path: string) => by.request('GET', base, { headers: headers(path) }),
    names: async (path: string): Promise<string[]> =>
      (await by.request('GET', base, { headers: headers(path) })).body.entries.map(
        (entry: any) => entry.path,
      ),
    stat: (path: string | Buffer) => by.request('GET', `${base}/stat`, { headers: headers(path) }),
    exists: (path: string) => by.request('GET', `${base}/exists`, { headers: headers(path) }),
    remove: (path: string, recursive?: boolean) =>
      by.request('DELETE', base, {
        headers: {
          ...headers(path),
          ...(recursive === undefined ? {} : { 'x-msb-file-recursive': String(recursive) }),
        },
      }),
    mkdir: (path: string) => by.post(`${base}/mkdir`, { path }),
    copy: (from: string, to: string) => by.post(`${base}/copy`, { from, to }),
    rename: (from: string, to: string) => by.post(`${base}/rename`, { from, to }),
  };
}
