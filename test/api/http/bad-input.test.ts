import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Client } from '../../support/client.js';
import { exchangeRaw } from '../../support/raw-connection.js';
import { startTestService, type TestService } from '../../support/service.js';
import { fullRequest } from '../../support/sandbox-requests.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  client = await service.newOrg();
});
afterAll(() => service.close());

describe('request bodies', () => {
  const change = (edit: (request: any) => void) => {
    const request = fullRequest('bad', 'none') as any;
    request.mounts = request.mounts.filter(({ type }: { type: string }) => type !== 'named');
    edit(request);
    return request;
  };
  const cases: [field: string, body: unknown][] = [
    ['name', change((r) => delete r.name)],
    ['name', change((r) => (r.name = ''))],
    ['name', change((r) => (r.name = '-x'))],
    ['name', change((r) => (r.name = 'ü'))],
    ['name', change((r) => (r.name = 'x'.repeat(129)))],
    ['name', change((r) => (r.name = 'a\0b'))],
    ['name', change((r) => (r.name = 1))],
    ['slug', change((r) => (r.slug = 'No'))],
    ['slug', change((r) => (r.slug = 'a--b'))],
    ['image', change((r) => delete r.image)],
    ['image.type', change((r) => (r.image.type = 'bind'))],
    ['image.reference', change((r) => (r.image.reference = ''))],
    ['image.reference', change((r) => (r.image.reference = 'team/UPPER'))],
    ['image.reference', change((r) => (r.image.reference = '--privileged'))],
    ['resources.vcpus', change((r) => (r.resources.vcpus = -1))],
    ['resources.vcpus', change((r) => (r.resources.vcpus = 1.5))],
    ['resources.vcpus', change((r) => (r.resources.vcpus = '1'))],
    ['resources.vcpus', change((r) => (r.resources.vcpus = 2 ** 31))],
    ['resources.memory_mib', change((r) => (r.resources.memory_mib = 0))],
    ['resources.disk_size_mib', change((r) => (r.resources.disk_size_mib = 0))],
    ['runtime.cmd[1]', change((r) => (r.runtime.cmd = ['a', 1]))],
    ['runtime.workdir', change((r) => (r.runtime.workdir = 'relative'))],
    ['init.cmd', change((r) => (r.init = { cmd: 'sbin/init' }))],
    ['init.cmd', change((r) => (r.init = { cmd: '' }))],
    ['init.cmd', change((r) => (r.init = { cmd: 'Auto' }))],
    ['runtime.log_level', change((r) => (r.runtime.log_level = 'loud'))],
    ['runtime.scripts', change((r) => (r.runtime.scripts = { '../x': '' }))],
    ['env[0].key', change((r) => (r.env = [{ key: '', value: '' }]))],
    ['env[0].key', change((r) => (r.env = [{ key: 'A=B', value: '' }]))],
    ['env[0].key', change((r) => (r.env = [{ key: 'MSB_X', value: '' }]))],
    ['env[0].value', change((r) => (r.env = [{ key: 'A' }]))],
    ['env[0].value', change((r) => (r.env = [{ key: 'A', value: 'x\ud800' }]))],
    ['labels.', change((r) => (r.labels = { '': 'x' }))],
    ['labels.service.x', change((r) => (r.labels = { 'service.x': 'x' }))],
    ['labels.a', change((r) => (r.labels = { a: 1 }))],
    ['rlimits[0].resource', change((r) => (r.rlimits[0].resource = 'Files'))],
    ['rlimits[0].soft', change((r) => (r.rlimits = [{ resource: 'cpu', soft: 2, hard: 1 }]))],
    ['rlimits[0].hard', change((r) => (r.rlimits = [{ resource: 'cpu', soft: 2, hard: 2 ** 70 }]))],
    ['rlimits[0].hard', change((r) => (r.rlimits = [{ resource: 'cpu', soft: 2, hard: 1.5 }]))],
    ['rlimits[0].soft', change((r) => (r.rlimits = [{ resource: 'cpu', soft: -1, hard: 2 }]))],
    [
      'rlimits[1].resource',
      change((r) => (r.rlimits = [1, 2].map(() => ({ resource: 'cpu', soft: 1, hard: 1 })))),
    ],
    ['mounts[0].type', change((r) => (r.mounts = [{ type: 'nfs', guest: '/x' }]))],
    ['mounts[0].type', change((r) => (r.mounts = [{ guest: '/x' }]))],
    ['mounts[0].guest', change((r) => (r.mounts = [{ type: 'tmpfs', guest: 'x' }]))],
    ['mounts[0].guest', change((r) => (r.mounts = [{ type: 'tmpfs', guest: '/' }]))],
    ['mounts[0].guest', change((r) => (r.mounts = [{ type: 'tmpfs', guest: '/a/../b' }]))],
    ['mounts[0].guest', change((r) => (r.mounts = [{ type: 'tmpfs', guest: '/a:b' }]))],
    ['mounts[1].guest', change((r) => (r.mounts = [1, 2].map(() => ({ type: 'tmpfs', guest: '/a' }))))],
    ['mounts[0].host', change((r) => (r.mounts = [{ type: 'bind', guest: '/a', host: '../x' }]))],
    [
      'mounts[0].format',
      change((r) => (r.mounts = [{ type: 'disk_image', guest: '/a', host: 'x', format: 'iso' }])),
    ],
    [
      'patches[0].src',
      change((r) => (r.patches = [{ type: 'copy_file', src: 'x', dst: '/y', replace: true }])),
    ],
    ['patches[0].path', change((r) => (r.patches = [{ type: 'mkdir', path: 'y' }]))],
    ['network.policy.default_egress', change((r) => (r.network.policy.default_egress = 'maybe'))],
    ['network.policy.rules[0].direction', change((r) => (r.network.policy.rules[0].direction = 'up'))],
    ['network.secrets.entries[0].value', change((r) => (r.network.secrets.entries[0].value = ''))],
    [
      'network.secrets.entries[0].placeholder',
      change((r) => (r.network.secrets.entries[0].placeholder = '')),
    ],
    [
      'network.secrets.entries[0].allowed_hosts',
      change((r) => (r.network.secrets.entries[0].allowed_hosts = [])),
    ],
    [
      'network.secrets.entries[0].source',
      change((r) => (r.network.secrets.entries[0].source = { type: 'env', var: 'X' })),
    ],
    ['lifecycle.idle_timeout_secs', change((r) => (r.lifecycle.idle_timeout_secs = 0))],
    ['lifecycle.max_duration_secs', change((r) => (r.lifecycle.max_duration_secs = -1))],
    ['registry.mode', change((r) => (r.registry = { mode: 'magic' }))],
    ['registry.password', change((r) => (r.registry = { mode: 'inline', username: 'x' }))],
    ['pull_policy', change((r) => (r.pull_policy = 'sometimes'))],
    [
      'network.policy.rules[0].destination.cidr',
      change((r) => (r.network.policy.rules[0].destination = { cidr: 'x' })),
    ],
    [
      'network.policy.rules[0].destination.cidr',
      change((r) => (r.network.policy.rules[0].destination = { cidr: '10.0.0.0/33' })),
    ],
    [
      'network.policy.rules[0].destination',
      change((r) => (r.network.policy.rules[0].destination = { group: 'public', cidr: '10.0.0.0/8' })),
    ],
    [
      'network.policy.rules[0].destination.cird',
      change((r) => (r.network.policy.rules[0].destination = { group: 'public', cird: '10.0.0.0/8' })),
    ],
    [
      'network.policy.rules[0].destination',
      change((r) => (r.network.policy.rules[0].destination = { domains: 'example.com' })),
    ],
    [
      'network.policy.rules[0].destination.group',
      change((r) => (r.network.policy.rules[0].destination = { group: 'pubic' })),
    ],
    [
      'network.policy.rules[0].ports[0]',
      change((r) => (r.network.policy.rules[0].ports = [{ start: 2, end: 1 }])),
    ],
    ['labels.a', change((r) => (r.labels = { a: '㐀'.repeat(1024) }))],
  ];
  test.each(cases)('a sandbox with a bad %s is refused by that name', async (field, body) => {
    const { status, body: answer } = await client.post('/v1/sandboxes', body);
    expect([status, answer.error?.details]).toEqual([400, expect.objectContaining({ field })]);
    expect(['invalid_request', 'invalid_sandbox_config']).toContain(answer.error.code);
    expect(answer.error.message.length).toBeGreaterThan(10);
  });

  test.each([[undefined], ['null'], ['[]'], ['1'], ['"x"']])('the body %s is refused', async (body) => {
    for (const path of ['/v1/sandboxes', '/v1/volumes']) {
      const { status, body: answer } = await client.request('POST', path, body === undefined ? {} : { body });
      expect([status, answer.error.code]).toEqual([400, 'invalid_request']);
    }
  });

  test.each(['{', '{"name":"canary-secret", oops}', '\u0001', '{"a":1}{"b":2}'])(
    'invalid JSON is refused and not echoed: %s',
    async (body) => {
      const answer = await client.request('POST', '/v1/sandboxes', { body });
      expect([answer.status, answer.body.error.code]).toEqual([400, 'invalid_json']);
      expect(answer.text).not.toContain('canary');
    },
  );

  test('a body nested too deep is refused, also in fields that nothing reads', async () => {
    const deep = `{"name":"x","unknown":${'['.repeat(30_000)}${']'.repeat(30_000)}}`;
    const { status, body } = await client.request('POST', '/v1/sandboxes', { body: deep });
    expect([status, body.error.code]).toEqual([400, 'invalid_request']);
  });

  test('the key __proto__, which parsing would lose, is refused', async () => {
    const body = '{"name":"x","image":{"type":"oci","reference":"x"},"labels":{"__proto__":"x"}}';
    expect((await client.request('POST', '/v1/sandboxes', { body })).body.error.code).toBe('invalid_json');
  });

  test.each(['text/plain', 'application/x-www-form-urlencoded', 'application/xml', 'nonsense'])(
    'the content type %s is refused',
    async (type) => {
      const answer = await client.request('POST', '/v1/sandboxes', {
        body: '{}',
        headers: { 'content-type': type },
      });
      expect([answer.status, answer.body.error.code]).toEqual([415, 'unsupported_media_type']);
    },
  );

  test('a body above the limit is refused with the limit in the message', async () => {
    const answer = await client.request('POST', '/v1/sandboxes', { body: ' '.repeat(4 * 1024 * 1024 + 1) });
    expect([answer.status, answer.body.error]).toEqual([
      413,
      {
        code: 'payload_too_large',
        message: 'the body is too large',
        details: { limit_bytes: 4 * 1024 * 1024 },
      },
    ]);
  });

  test('start and stop accept an empty body, {} and no body', async () => {
    const path = `/v1/sandboxes/${uuidv7()}/stop`;
    for (const options of [{}, { body: {} }, { body: '' }]) {
      expect((await client.request('POST', path, options)).status).toBe(404);
    }
  });

  test.each([
    ['name', { name: 'Bad_Name' }],
    ['name', { name: '' }],
    ['name', { name: 'x'.repeat(64) }],
    ['name', {}],
    ['capacity_gib', { name: 'x', capacity_gib: 0 }],
    ['labels.sandbox.x', { name: 'x', labels: { 'sandbox.x': '' } }],
    ['storage', { name: 'x', storage: 'tape' }],
  ])('a volume with a bad %s is refused: %j', async (field, body) => {
    const { status, body: answer } = await client.post('/v1/volumes', body);
    expect([status, answer.error.code, answer.error.details]).toEqual([400, 'invalid_request', { field }]);
  });
});

describe('routes and protocol', () => {
  test('an unknown route is 404 route_not_found, with and without a key', async () => {
    for (const path of ['/v1', '/v1/nothing', '/v2/sandboxes', '/V1/sandboxes', '/etc/passwd']) {
      for (const key of [null, client.key]) {
        const { status, body } = await client.request('GET', path, { key });
        expect([status, body.error.code], path).toEqual([404, 'route_not_found']);
      }
    }
  });

  test('an unknown route is 404 route_not_found whatever the body', async () => {
    for (const headers of [{ 'content-type': 'text/plain' }, { 'content-type': 'application/json' }]) {
      const response = await fetch(`${service.url}/v1/nothing`, { method: 'PUT', headers, body: '{broken' });
      expect([response.status, ((await response.json()) as { error: { code: string } }).error.code]).toEqual([
        404,
        'route_not_found',
      ]);
    }
  });

  test('a wrong method is 405 with Allow, whatever the body', async () => {
    for (const [method, path, allow] of [
      ['PUT', '/v1/sandboxes', 'GET, HEAD, POST'],
      ['DELETE', '/v1/events', 'GET, HEAD'],
      ['POST', `/v1/events/${uuidv7()}`, 'GET, HEAD'],
      ['GET', `/v1/volumes/${uuidv7()}/restore`, 'POST'],
      ['PATCH', '/healthz', 'GET, HEAD'],
      ['OPTIONS', '/v1/billing/usage/sandbox', 'GET'],
    ] as const) {
      const answer = await client.request(method, path, method === 'GET' ? {} : { body: '{broken' });
      expect(
        [answer.status, answer.body.error.code, answer.headers.get('allow')],
        `${method} ${path}`,
      ).toEqual([405, 'method_not_allowed', allow]);
    }
  });

  test('a valid request id is kept, an invalid one is replaced', async () => {
    const echo = async (id: string) =>
      (await client.request('GET', '/v1/sandboxes', { headers: { 'x-request-id': id } })).headers.get(
        'x-request-id',
      );
    expect(await echo('abc-123_x.y:z')).toBe('abc-123_x.y:z');
    for (const bad of ['x'.repeat(129), 'a b', '{}', '-x', 'a;b']) {
      expect(await echo(bad)).toMatch(/^[0-9a-f-]{36}$/);
    }
  });

  test('bad escapes in the path get the envelope', async () => {
    const answer = await client.get('/v1/sandboxes/%zz');
    expect([answer.status, answer.body.error.code]).toEqual([400, 'invalid_request']);
    expect(answer.headers.get('x-request-id')).toMatch(/./);
  });

  test.each([
    ['not HTTP at all', 'HELO example.com\r\n\r\n', 400, 'invalid_request'],
    ['an unknown method', 'BREW /v1/sandboxes HTTP/1.1\r\nhost: x\r\n\r\n', 405, 'method_not_allowed'],
    [
      'headers above the limit',
      `GET / HTTP/1.1\r\nhost: x\r\nx: ${'a'.repeat(20_000)}\r\n\r\n`,
      431,
      'headers_too_large',
    ],
    [
      'a bad content-length',
      'POST /v1/sandboxes HTTP/1.1\r\nhost: x\r\ncontent-length: x\r\n\r\n',
      400,
      'invalid_request',
    ],
  ])('%s gets the envelope', async (_, bytes, status, code) => {
    const answer = await exchangeRaw(client.url, bytes);
    expect(answer.split('\r\n')[0]).toContain(` ${status} `);
    expect(answer.toLowerCase()).toContain('x-request-id:');
    expect(JSON.parse(answer.slice(answer.indexOf('\r\n\r\n') + 4))).toEqual({
      error: { code, message: expect.any(String), details: null },
    });
  });

  test('HEAD answers like GET without a body', async () => {
    const response = await fetch(`${client.url}/v1/sandboxes`, {
      method: 'HEAD',
      headers: { authorization: `Bearer ${client.key}` },
    });
    expect([response.status, await response.text()]).toEqual([200, '']);
  });
});
