import { once } from 'node:events';
import type { Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { BODY_MEMORY } from '../../../src/access/bodies.js';
import { operator } from '../../../src/audit/events/actor.js';
import { BODY_LIMIT } from '../../../src/http/server.js';
import { createKey } from '../../../src/keys/create.js';
import { sleep } from '../../../src/lib/sleep.js';
import { CREATE_BODY_LIMIT, MAX_PATCH_BYTES, MAX_SPEC_BYTES } from '../../../src/spec/size-limits.js';
import type { Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { openRaw, requestHead } from '../../support/raw-connection.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  client = await service.newOrg();
});
afterAll(() => service.close());

const codeOf = ({ status, body }: { status: number; body: any }) => [status, body?.error?.code];
const withField = (json: string) => `{"name":"x","image":{"type":"oci","reference":"x"},"field":${json}}`;

describe('a body that would take long to parse is refused', () => {
  test.each([
    ['nested lists', '['.repeat(2_000_000), /nested/],
    ['nested objects', '{"a":'.repeat(500_000), /nested/],
    ['empty keys', withField(`{${'"":0,'.repeat(500_000)}"":0}`), /values/],
    [
      'keys',
      withField(JSON.stringify(Object.fromEntries(Array.from({ length: 20_000 }, (_, at) => [at, 0])))),
      /values/,
    ],
    ['numbers', withField(JSON.stringify(Array.from({ length: 20_000 }, () => 0))), /values/],
    ['digits', withField('1'.repeat(3_000_000)), /number/],
  ])('%s', async (_, body, message) => {
    const answer = await client.request('POST', '/v1/sandboxes', { body });
    expect(codeOf(answer)).toEqual([400, 'invalid_request']);
    expect(answer.body.error.message).toMatch(message);
  });

  test('long unknown names are not compared with known ones, and not returned whole', async () => {
    const names = Array.from({ length: 50 }, (_, at) => [`${at}${'x'.repeat(50_000)}`, 1]);
    const body = smallRequest('names', Object.fromEntries(names));
    const answer = await client.post('/v1/sandboxes', body);
    expect([answer.status, answer.body.warnings.length]).toEqual([200, 50]);
    expect(answer.text.length).toBeLessThan(50_000);
  });

  test('a body beyond the limit of its route, with its length or in chunks', async () => {
    const limits = { '/v1/sandboxes': CREATE_BODY_LIMIT, '/v1/volumes': BODY_LIMIT };
    for (const [path, limit] of Object.entries(limits)) {
      const text = `{"name":"${'x'.repeat(limit)}"}`;
      const refused = await client.request('POST', path, { body: text });
      expect([...codeOf(refused), refused.body.error.details]).toEqual([
        413,
        'payload_too_large',
        { limit_bytes: limit },
      ]);
      // The types of a browser, which files of the console bring along, lack "duplex".
      const request: object = {
        method: 'POST',
        headers: { authorization: `Bearer ${client.key}`, 'content-type': 'application/json' },
        body: new Blob([text]).stream(),
        duplex: 'half',
      };
      const inChunks = await fetch(`${service.url}${path}`, request);
      expect(inChunks.status).toBe(413);
      await inChunks.arrayBuffer();
    }
  });

  test('its answer arrives, however slowly the client still sends', async () => {
    const { socket, text, isClosed } = await openRaw(service.url);
    const head = requestHead(
      'POST /v1/volumes',
      client.key,
      'content-type: application/json',
      `content-length: ${BODY_LIMIT + 1}`,
    );
    socket.write(head);
    await until(
      async () => Promise.resolve(text()),
      (answer) => answer.startsWith('HTTP/1.1 413 '),
    );
    // Longer than a connection stays open whose client sends nothing.
    for (let count = 0; count < 12; count += 1) {
      socket.write('x'.repeat(64));
      await sleep(250);
    }
    expect(isClosed()).toBe(false);
    // The connection takes another request.
    socket.write(`${'x'.repeat(BODY_LIMIT + 1 - 12 * 64)}${requestHead('GET /v1/volumes', client.key)}`);
    await until(
      async () => Promise.resolve(text()),
      (answers) => answers.includes('HTTP/1.1 200 '),
    );
    socket.destroy();
  });

  test('its connection ends when the client has stopped to send', async () => {
    const { socket, whole } = await openRaw(service.url);
    const length = `content-length: ${BODY_LIMIT + 1}`;
    socket.write(requestHead('POST /v1/volumes', client.key, 'content-type: application/json', length));
    expect(await whole).toMatch(/^HTTP\/1\.1 413 /);
  });

  test('a compressed body', async () => {
    const headers = { 'content-encoding': 'gzip' };
    const answer = await client.request('POST', '/v1/volumes', { body: '{}', headers });
    expect(codeOf(answer)).toEqual([415, 'unsupported_media_type']);
  });
});

describe('file patches', () => {
  const create = (name: string, content: unknown, more: object[] = []) => {
    const patch = { type: 'file', path: '/blob', content, replace: true };
    return client.post('/v1/sandboxes', smallRequest(name, { patches: [patch, ...more] }));
  };
  const storedContent = async (id: string) => {
    const { rows } = await service.ctx.pool.query<{ content: string }>(
      `select run_spec -> 'patches' -> 0 ->> 'content' as content from sandboxes where id = $1`,
      [id],
    );
    return Buffer.from(rows[0]!.content, 'base64');
  };

  test('pass as numbers and as base64 up to a mebibyte, and are stored as the same', async () => {
    const bytes = Buffer.from(Array.from({ length: MAX_PATCH_BYTES }, (_, at) => (at * 7) % 256));
    for (const [name, content] of [
      ['numbers', [...bytes]],
      ['base64', bytes.toString('base64')],
    ] as const) {
      const { status, body } = await create(name, content);
      expect(status).toBe(200);
      expect((await storedContent(body.id)).equals(bytes)).toBe(true);
    }
    const short = await create('short', [0, 255, 10]);
    expect([...(await storedContent(short.body.id))]).toEqual([0, 255, 10]);
  });

  test('are refused with too many bytes together', async () => {
    const answer = await create(
      'full',
      [...Buffer.alloc(MAX_PATCH_BYTES)],
      [{ type: 'text', path: '/more', content: 'x', replace: true }],
    );
    expect([...codeOf(answer), answer.body.error.details]).toEqual([
      400,
      'invalid_sandbox_config',
      { field: 'patches[1]', limit_bytes: MAX_PATCH_BYTES },
    ]);
  });

  test('are refused by field without bytes', async () => {
    for (const [content, field] of [
      [[...Buffer.alloc(2_000), 256], 'patches[0].content[2000]'],
      ['not base64!', 'patches[0].content'],
      [{ bytes: 'AA==' }, 'patches[0].content'],
    ] as const) {
      const { status, body } = await create('wrong', content);
      expect([status, body.error.details.field]).toEqual([400, field]);
    }
  });

  test('a list of bytes is no text', async () => {
    const patches = [{ type: 'text', path: '/x', content: [...Buffer.alloc(2_000)], replace: true }];
    const { status, body } = await client.post('/v1/sandboxes', smallRequest('text', { patches }));
    expect([status, body.error.details]).toEqual([400, { field: 'patches[0].content' }]);
    const labels = { content: [...Buffer.alloc(2_000)] };
    const labelled = await client.post('/v1/sandboxes', smallRequest('label', { labels }));
    expect([labelled.status, labelled.body.error.details]).toEqual([400, { field: 'labels.content' }]);
  });
});

describe('a specification', () => {
  test.each([
    ['env', { env: Array.from({ length: 8 }, (_, at) => ({ key: `K${at}`, value: 'x'.repeat(9_000) })) }],
    ['runtime', { runtime: { scripts: { a: 'x'.repeat(MAX_SPEC_BYTES) } } }],
    ['init', { init: { cmd: '/init', args: ['ü'.repeat(MAX_SPEC_BYTES / 2)] } }],
    [
      'mounts',
      {
        mounts: Array.from({ length: 20 }, (_, at) => ({
          type: 'bind',
          host: 'x'.repeat(4_000),
          guest: `/${at}`,
        })),
      },
    ],
  ])('of too many bytes is refused, and its largest part named: %s', async (field, part) => {
    const answer = await client.post('/v1/sandboxes', smallRequest('large', part));
    expect(codeOf(answer)).toEqual([400, 'invalid_sandbox_config']);
    expect(answer.body.error.details).toEqual({
      field,
      bytes: expect.any(Number),
      limit_bytes: MAX_SPEC_BYTES,
    });
    expect(answer.body.error.message).toContain(String(answer.body.error.details.bytes));
  });

  test.each([
    ['env', { env: Array.from({ length: 513 }, (_, at) => ({ key: `K${at}`, value: '' })) }],
    ['mounts', { mounts: Array.from({ length: 65 }, (_, at) => ({ type: 'tmpfs', guest: `/${at}` })) }],
    ['patches', { patches: Array.from({ length: 257 }, (_, at) => ({ type: 'mkdir', path: `/${at}` })) }],
    [
      'runtime.scripts',
      { runtime: { scripts: Object.fromEntries(Array.from({ length: 65 }, (_, at) => [at, ''])) } },
    ],
    [
      'network.policy.rules',
      {
        network: {
          policy: {
            rules: Array.from({ length: 257 }, () => ({
              direction: 'egress',
              destination: 'any',
              action: 'allow',
            })),
          },
        },
      },
    ],
    [
      'labels.16',
      { labels: Object.fromEntries(Array.from({ length: 17 }, (_, at) => [at, 'x'.repeat(1_000)])) },
    ],
  ])('with too many entries is refused: %s', async (field, part) => {
    const { status, body } = await client.post('/v1/sandboxes', smallRequest('many', part));
    expect([status, body.error.details]).toEqual([400, { field }]);
  });
});

describe('the memory for bodies', () => {
  /** Declares a body, and sends only its beginning when the service has admitted it. */
  async function trickle(key: string, declared: number | 'chunked', sent = ''): Promise<Socket> {
    const length = declared === 'chunked' ? 'transfer-encoding: chunked' : `content-length: ${declared}`;
    const headers = ['content-type: application/json', 'expect: 100-continue', length];
    const { socket } = await openRaw(service.url);
    socket.write(requestHead('POST /v1/sandboxes', key, ...headers));
    const [answer] = (await once(socket, 'data')) as [Buffer];
    expect(answer.toString()).toBe('HTTP/1.1 100 Continue\r\n\r\n');
    socket.write(sent);
    return socket;
  }
  const statusOf = (owner: Client, key: string) =>
    owner.request('POST', '/v1/sandboxes', { body: '{', key }).then(codeOf);
  const FREE = [400, 'invalid_json'];
  const FULL = [429, 'rate_limited'];

  test('is shared by key and organization, and free again when the clients are gone', async () => {
    const [slow, other] = [await service.newOrg(), await service.newOrg()];
    const more = (name: string) => createKey(service.ctx.pool, slow.org.id, name, operator('test'));
    const [second, third] = [await more('second'), await more('third')];
    const ofKey = BODY_MEMORY.ofKey / CREATE_BODY_LIMIT;
    const open = (key: string) =>
      Promise.all(Array.from({ length: ofKey }, () => trickle(key, CREATE_BODY_LIMIT, '{"name":')));

    const held = await open(slow.key);
    expect(await statusOf(slow, slow.key)).toEqual(FULL);
    const refused = await slow.request('POST', '/v1/sandboxes', { body: '{' });
    expect([codeOf(refused), refused.headers.get('retry-after')]).toEqual([FULL, '1']);
    expect(await statusOf(slow, second.key)).toEqual(FREE);

    held.push(...(await open(second.key)));
    expect(await statusOf(slow, third.key)).toEqual(FULL);
    expect(await statusOf(other, other.key)).toEqual(FREE);
    expect((await slow.get('/v1/sandboxes')).status).toBe(200);

    for (const socket of held) socket.destroy();
    for (const key of [slow.key, second.key, third.key]) {
      expect(
        await until(
          () => statusOf(slow, key),
          (status) => status[0] === 400,
        ),
      ).toEqual(FREE);
    }
  });

  test('counts a body without a length as it arrives', async () => {
    const slow = await service.newOrg();
    const megabytes = 3 * 1024 * 1024;
    const most = Math.floor(BODY_MEMORY.ofKey / megabytes);
    const held = await Promise.all(
      Array.from({ length: 3 * most }, () => trickle(slow.key, 'chunked', '8\r\n{"name":\r\n')),
    );
    expect(await statusOf(slow, slow.key)).toEqual(FREE);
    let refused = 0;
    for (const socket of held) {
      socket.once('data', (answer) => (refused += answer.toString().startsWith('HTTP/1.1 429 ') ? 1 : 0));
      socket.write(`${megabytes.toString(16)}\r\n"${'x'.repeat(megabytes - 1)}\r\n`);
    }
    await until(
      async () => Promise.resolve(refused),
      (count) => count >= 2 * most,
    );
    for (const socket of held) socket.destroy();
    expect(
      await until(
        () => statusOf(slow, slow.key),
        (status) => status[0] === 400,
      ),
    ).toEqual(FREE);
  });

  test('serves bodies of the usual size to others while it is full', async () => {
    const orgs = await Promise.all(Array.from({ length: 4 }, () => service.newOrg()));
    const held: Socket[] = [];
    for (const { key, org } of orgs.slice(0, 3)) {
      const keys = [key, (await createKey(service.ctx.pool, org.id, 'second', operator('test'))).key];
      for (const each of keys) {
        for (let count = 0; count < BODY_MEMORY.ofKey / CREATE_BODY_LIMIT; count += 1) {
          held.push(await trickle(each, CREATE_BODY_LIMIT));
        }
      }
    }
    const last = orgs[3]!;
    const large = () => last.request('POST', '/v1/sandboxes', { body: `"${'x'.repeat(3_000_000)}"` });
    expect(codeOf(await large())).toEqual(FULL);
    expect(await statusOf(last, last.key)).toEqual(FREE);
    for (const socket of held) socket.destroy();
    await until(large, ({ status }) => status === 400);
  });
});
