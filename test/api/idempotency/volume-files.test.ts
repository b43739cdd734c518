import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FULL_ACCESS } from '../../../src/access/access.js';
import { operator } from '../../../src/audit/events/actor.js';
import { inFileWrite } from '../../../src/idempotency/file-write.js';
import { addMillis } from '../../../src/lib/instant.js';
import type { Answer } from '../../support/answer.js';
import type { Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';
import { until } from '../../support/polling.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService();
  client = await service.newOrg();
});
afterAll(() => service.close());

const isReplay = ({ headers }: Answer) => headers.get('idempotency-replayed') === 'true';

const pathHeader = (path: string) => ({ 'x-msb-file-path': Buffer.from(path).toString('base64url') });

/** Writes of files in a volume with the files `a` and `other`: the request, and the request that undoes it. */
const FILE_WRITES: Record<string, { request: FileRequest; undo: FileRequest }> = {
  delete_volume_file: {
    request: { method: 'DELETE', path: '', headers: pathHeader('a') },
    undo: { method: 'POST', path: '/copy', body: { from: 'other', to: 'a' } },
  },
  make_volume_directory: {
    request: { method: 'POST', path: '/mkdir', body: { path: 'made' } },
    undo: { method: 'DELETE', path: '', headers: pathHeader('made') },
  },
  copy_volume_file: {
    request: { method: 'POST', path: '/copy', body: { from: 'a', to: 'copied' } },
    undo: { method: 'DELETE', path: '', headers: pathHeader('copied') },
  },
  rename_volume_file: {
    request: { method: 'POST', path: '/rename', body: { from: 'a', to: 'renamed' } },
    undo: { method: 'POST', path: '/rename', body: { from: 'renamed', to: 'a' } },
  },
};

interface FileRequest {
  method: string;
  path: string;
  headers?: Record<string, string>;
  body?: unknown;
}

test.each(Object.keys(FILE_WRITES))('%s with a key is executed once', async (operation) => {
  const { body: volume } = await client.post('/v1/volumes', { name: operation.replaceAll('_', '-') });
  const base = `/v1/volumes/${volume.id}/files`;
  for (const name of ['a', 'other']) {
    await fetch(`${client.url}${base}/content`, {
      method: 'PUT',
      headers: { authorization: `Bearer ${client.key}`, ...pathHeader(name) },
      body: name,
    });
  }
  const ask = ({ path, method, ...rest }: FileRequest, headers = {}) =>
    client.request(method, `${base}${path}`, { ...rest, headers: { ...rest.headers, ...headers } });
  const files = async () => (await ask({ method: 'GET', path: '', headers: pathHeader('/') })).body.entries;
  const { request, undo } = FILE_WRITES[operation]!;
  const key = { 'idempotency-key': `file ${operation}` };
  const first = await ask(request, key);
  expect([first.status, isReplay(first)], first.text).toEqual([200, false]);
  expect((await ask(undo)).status).toBe(200);
  const undone = await files();
  const again = await ask(request, key);
  expect([again.status, isReplay(again), again.text]).toEqual([200, true, first.text]);
  expect(await files()).toEqual(undone);
  // The headers hold part of the request, too.
  const other = request.headers
    ? { ...request, headers: pathHeader('other') }
    : { ...request, body: { path: 'x' } };
  if (request.headers || operation === 'make_volume_directory') {
    expect((await ask(other, key)).body.error.code).toBe('idempotency_conflict');
  }
});

describe('writes of files with keys', () => {
  const make = async (mine: Client) => {
    const { body: host } = await mine.get('/v1/volumes/default');
    return (path: string, key: string) =>
      mine.request('POST', `/v1/volumes/${host.id}/files/mkdir`, {
        body: { path },
        headers: { 'idempotency-key': key },
      });
  };

  test('hold no database connection, at any number', async () => {
    const mkdir = await make(await service.newOrg());
    const answers = await Promise.all(
      Array.from({ length: 60 }, (_, index) => mkdir(`d${index}`, `key-${index}`)),
    );
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
  });

  test('answer that the same key is in progress, and a write that was cut off is executed', async () => {
    const mine = await service.newOrg();
    const mkdir = await make(mine);
    await mkdir('d', 'cut');
    const { pool } = service.ctx;
    const asIfBegun = (ago: string) =>
      pool.query(
        `update idempotency_keys set final = false, answer = null, created_at = now() - $2::interval where org_id = $1`,
        [mine.org.id, ago],
      );
    await asIfBegun('1 second');
    const early = await mkdir('d', 'cut');
    expect([early.status, early.body.error.code, early.headers.get('retry-after')]).toEqual([
      409,
      'idempotency_conflict',
      '1',
    ]);
    await asIfBegun('2 minutes');
    expect((await mkdir('d', 'cut')).status).toBe(200);
    expect(isReplay(await mkdir('d', 'cut'))).toBe(true);
  });

  test('that outlast their claim are not started again, and their answer is stored', async () => {
    const { org } = await service.newOrg();
    const keyed = {
      key: 'slow',
      fingerprints: [Buffer.alloc(32)] as const,
      waits: false,
      warnings: [],
      settled: false,
      replayed: () => undefined,
    };
    const caller = { orgId: org.id, actor: operator('test'), access: FULL_ACCESS, keyed };
    let begun = 0;
    const work = (ends: Promise<unknown>) => async () => {
      begun += 1;
      await ends;
      return { message: 'renamed' };
    };
    let finish: () => void = () => undefined;
    const first = inFileWrite(service.ctx, caller, work(new Promise<void>((resolve) => (finish = resolve))));
    await until(
      async () => Promise.resolve(begun),
      (count) => count === 1,
    );
    const again = () => inFileWrite(service.ctx, caller, work(Promise.resolve()));
    await expect(again()).rejects.toThrow('still being carried out');
    // Another process takes the key over after the claim expires. The first process neither stores its answer nor
    // releases the key.
    const later = { ...service.ctx, now: () => addMillis(service.ctx.now(), 61_000) };
    const other = inFileWrite(later, caller, async () => Promise.resolve({ message: 'taken over' }));
    expect(await other).toEqual({ message: 'taken over' });
    finish();
    expect(await first).toEqual({ message: 'renamed' });
    expect(await again()).toEqual({ message: 'taken over' });
    expect(begun).toBe(1);
  });

  test('recognise an upload by its body, and do not repeat it', async () => {
    const mine = await service.newOrg();
    const { body: host } = await mine.get('/v1/volumes/default');
    const url = `${mine.url}/v1/volumes/${host.id}/files/content`;
    const headers = { authorization: `Bearer ${mine.key}`, ...pathHeader('a') };
    const put = (body: string, key?: string) =>
      fetch(url, {
        method: 'PUT',
        headers: { ...headers, ...(key === undefined ? {} : { 'idempotency-key': key }) },
        body,
      });
    const content = async () => (await fetch(url, { headers })).text();
    const first = await put('one', 'upload');
    expect([first.status, await content()]).toEqual([200, 'one']);
    expect((await put('between')).status).toBe(200);
    const repeated = await put('one', 'upload');
    expect([repeated.status, repeated.headers.get('idempotency-replayed'), await content()]).toEqual([
      200,
      'true',
      'between',
    ]);
    const conflict = await put('two', 'upload');
    expect([conflict.status, ((await conflict.json()) as any).error.code, await content()]).toEqual([
      409,
      'idempotency_conflict',
      'between',
    ]);
  });

  test('that are refused release the key', async () => {
    const mkdir = await make(await service.newOrg());
    expect((await mkdir('../out', 'refused')).status).toBe(400);
    expect((await mkdir('in', 'refused')).status).toBe(200);
  });
});
