import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { handlingOf } from '../../../src/http/prefer.js';
import { nearestName } from '../../../src/lib/nearest.js';
import type { Answer } from '../../support/answer.js';
import type { Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';
import { fullRequest, smallRequest } from '../../support/sandbox-requests.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService();
  client = await service.newOrg();
});
afterAll(() => service.close());

const STRICT = { prefer: 'handling=strict' };
const post = (path: string, body: unknown, headers: Record<string, string> = {}, query = '') =>
  client.request('POST', path, { body, headers, query });

/** Each warning as its field, or as its field and the suggested one. */
const named = ({ body }: Answer): unknown[] =>
  (body.warnings ?? []).map(({ field, nearest }: Record<string, string>) =>
    nearest === undefined ? field : [field, nearest],
  );

describe('ignored fields of a request', () => {
  const ignored: [part: Record<string, unknown>, warnings: unknown[]][] = [
    [{ Labels: {} }, [['Labels', 'labels']]],
    [{ lables: {} }, [['lables', 'labels']]],
    [{ command: ['x'], entrypoint: [] }, ['command', ['entrypoint', 'runtime.entrypoint']]],
    [{ network: { strict: true, trust_host_cas: false } }, []],
    [{ network: { strict: false } }, []],
    [{ network: { trust_host_cas: true, dns: { rebind_protection: true }, interface: { mtu: 9000 } } }, []],
    [{ network: { dns: null, interface: {} } }, []],
    [{ runtime: { log_level: 'debug', metrics_sample_interval_ms: 5 } }, ['runtime.log_level']],
    [{ runtime: { log_level: null, cmd: null } }, []],
    [{ patches: [{ type: 'mkdir', path: '/x', owner: 'me' }] }, ['patches[0].owner']],
    [{ labels: { any: 'key', gpus: 'is fine' } }, []],
    [{ zzzzzzzz: null }, ['zzzzzzzz']],
    // Null asks for nothing, also of a restriction.
    [{ network: { rate_limiter: null }, gpus: null }, ['network.rate_limiter', 'gpus']],
  ];
  test.each(ignored)('are named in warnings on a create with %j', async (part, warnings) => {
    const name = `w-${ignored.findIndex(([each]) => each === part)}`;
    const answer = await post('/v1/sandboxes', { ...smallRequest(name), ...part });
    expect([answer.status, named(answer)], answer.text).toEqual([200, warnings]);
    if (warnings.length > 0) expect(answer.text).toMatch(/^\{"warnings":/);
    for (const { field, message } of answer.body.warnings ?? []) expect(message).toContain(field);
  });

  test('are absent from answers without warnings, and from reads', async () => {
    await client.post('/v1/volumes', { name: 'mounted' });
    const full = fullRequest('full', 'mounted') as Record<string, any>;
    delete full['runtime'].log_level;
    const created = await client.post('/v1/sandboxes', full);
    expect([created.status, 'warnings' in created.body], created.text).toEqual([200, false]);
    const odd = await client.post('/v1/sandboxes', smallRequest('odd', { oddity: 1 }));
    expect(named(odd)).toEqual(['oddity']);
    expect((await client.get(`/v1/sandboxes/${odd.body.id}`)).body).not.toHaveProperty('warnings');
  });

  test('are named by every other write, also fields that cannot change', async () => {
    const { body } = await client.post('/v1/sandboxes', smallRequest('written'));
    const path = `/v1/sandboxes/${body.id}`;
    expect(named(await client.patch(path, { image: 'x', nmae: 'x' }))).toEqual(['image', ['nmae', 'name']]);
    expect(named(await client.patch('/v1/sandboxes/by-name/written', { image: 'x' }))).toEqual(['image']);
    expect(named(await client.post(`${path}/start`, { wait_for: 'running' }))).toEqual(['wait_for']);
    expect(named(await client.post('/v1/volumes', { name: 'typo', lables: {} }))).toEqual([
      ['lables', 'labels'],
    ]);
    // Keys and webhooks refuse unknown fields.
    const { status, body: refused } = await client.post('/v1/keys', { name: 'typo', scopes: [], scope: 'x' });
    expect([status, refused.error.message]).toEqual([
      400,
      'there is no field "scope"; did you mean "scopes"?',
    ]);
  });

  test('are named again for a repeated request, also one that waited', async () => {
    for (const query of ['', 'start=true&wait_for=running']) {
      const body = smallRequest(`again-${query.length}`, { lables: {} });
      const first = await post('/v1/sandboxes', body, { 'idempotency-key': `k${query.length}` }, query);
      const again = await post('/v1/sandboxes', body, { 'idempotency-key': `k${query.length}` }, query);
      expect(named(first)).toEqual([['lables', 'labels']]);
      expect([again.headers.get('idempotency-replayed'), again.text]).toEqual(['true', first.text]);
    }
  });

  test('are named for a repeated request as for the first, not as a later release would', async () => {
    const body = smallRequest('kept', { lables: {} });
    await post('/v1/sandboxes', body, { 'idempotency-key': 'kept' });
    await service.ctx.pool.query(
      `update idempotency_keys set answer = (answer::jsonb - 'warnings')::json where org_id = $1 and key = 'kept'`,
      [client.org.id],
    );
    const again = await post('/v1/sandboxes', body, { 'idempotency-key': 'kept' });
    expect([again.headers.get('idempotency-replayed'), named(again)]).toEqual(['true', []]);
  });

  test('are named up to the first fifty of a body', async () => {
    const many = Object.fromEntries(Array.from({ length: 5_000 }, (_, index) => [`x${index}`, 1]));
    const answer = await client.post('/v1/sandboxes', smallRequest('many', many));
    expect([answer.status, answer.body.warnings.length]).toEqual([200, 50]);
    const late = await client.post('/v1/sandboxes', smallRequest('late', { ...many, ports: [] }));
    expect([late.status, late.body.error.details.field]).toEqual([400, 'ports']);
  });
});

describe('unknown fields that would restrict or give something', () => {
  const refused: [part: Record<string, unknown>, field: string, nearest?: string][] = [
    [{ secrets: {} }, 'secrets', 'network.secrets'],
    [{ ports: [] }, 'ports', 'network.ports'],
    [{ runtime: { ports: [] } }, 'runtime.ports', 'network.ports'],
    [{ vcpus: 4 }, 'vcpus', 'resources.vcpus'],
    [{ cpu: 4 }, 'cpu', 'resources.vcpus'],
    [{ memory: 512 }, 'memory', 'resources.memory_mib'],
    [{ timeout: 5 }, 'timeout', 'lifecycle.idle_timeout_secs'],
    [{ resource: { vcpu: 4 } }, 'resource', 'resources'],
    [{ resources: { gpus: 1 } }, 'resources.gpus'],
    [{ resources: { cpus: 4 } }, 'resources.cpus', 'resources.vcpus'],
    [{ gpus: 1 }, 'gpus'],
    [{ maxUdpFlows: 1 }, 'maxUdpFlows'],
    [{ runtime: { readOnly: true, 'read-only': 1, disk_quota: 1 } }, 'runtime.disk_quota'],
    [{ init: { cmd: 'auto', seccomp_profile: 'x' } }, 'init.seccomp_profile'],
    [{ env: [{ key: 'A', value: '1', sensitive: true }] }, 'env[0].sensitive'],
    [{ rlimits: [{ resource: 'nofile', soft: 1, hard: 1, for: 'x' }] }, 'rlimits[0].for'],
    [{ lifecycle: { ttl: 5 } }, 'lifecycle.ttl'],
    [{ mounts: [{ type: 'tmpfs', guest: '/a', size: 1 }] }, 'mounts[0].size', 'mounts[0].size_mib'],
    [{ mounts: [{ type: 'tmpfs', guest: '/a', host: 'x' }] }, 'mounts[0].host'],
    [
      { mounts: [{ type: 'tmpfs', guest: '/a', options: { override_uid: 1 } }] },
      'mounts[0].options.override_uid',
    ],
    [{ network: { rate_limiter: {} } }, 'network.rate_limiter'],
    [{ network: { dns: { zzzzzz: true } } }, 'network.dns.zzzzzz'],
    [{ network: { interface: { vlan: 1 } } }, 'network.interface.vlan'],
    [{ network: { tls: { pins: [] } } }, 'network.tls.pins'],
    [
      { network: { secrets: { entries: [{ env_var: 'A', methods: [] }] } } },
      'network.secrets.entries[0].methods',
    ],
    [
      { network: { policy: { rules: [], default: 'deny' } } },
      'network.policy.default',
      'network.policy.default_egress',
    ],
  ];
  test.each(refused)('are refused by field on a create with %j', async (part, field, nearest) => {
    for (const prefer of ['', 'handling=lenient', 'handling=strict']) {
      const answer = await post('/v1/sandboxes', { ...smallRequest('refused'), ...part }, { prefer });
      const { code, message, details } = answer.body.error ?? {};
      expect([answer.status, code, details?.field, details?.nearest], answer.text).toEqual([
        400,
        'invalid_request',
        field,
        nearest,
      ]);
      expect(message).toContain(field);
    }
    expect((await client.get('/v1/sandboxes/by-name/refused')).status).toBe(404);
  });

  test('are refused by every other write, also where they cannot change', async () => {
    const { body } = await client.post('/v1/sandboxes', smallRequest('restricted'));
    const path = `/v1/sandboxes/${body.id}`;
    const volume = await client.post('/v1/volumes', { name: 'capped' });
    const answers = [
      await client.patch(path, { resources: { vcpus: 2 } }),
      await client.patch(path, { lifecycle: {} }),
      await client.post('/v1/volumes', { name: 'typo-2', capacity: 5 }),
      await client.post('/v1/volumes', { name: 'typo-2', quota_mib: 5 }),
      await client.patch(`/v1/volumes/${volume.body.id}`, { max_size: 5 }),
    ];
    expect(answers.map(({ status, body: refusal }) => [status, refusal.error?.details.field])).toEqual([
      [400, 'resources'],
      [400, 'lifecycle'],
      [400, 'capacity'],
      [400, 'quota_mib'],
      [400, 'max_size'],
    ]);
  });
});

describe('Prefer: handling=strict', () => {
  test('refuses a request with an ignored field by the field and the nearest name, and changes nothing', async () => {
    const answer = await post(
      '/v1/sandboxes',
      smallRequest('strict', { lables: {}, runtime: { log_level: 'debug' } }),
      STRICT,
    );
    expect([answer.status, answer.headers.get('preference-applied')]).toEqual([400, 'handling=strict']);
    expect(answer.body.error).toMatchObject({
      code: 'invalid_request',
      message: 'there is no field "lables"; did you mean "labels"?',
      details: {
        field: 'lables',
        nearest: 'labels',
        warnings: [{ field: 'lables' }, { field: 'runtime.log_level' }],
      },
    });
    expect((await client.get('/v1/sandboxes/by-name/strict')).status).toBe(404);
  });

  test('executes a request without ignored fields, and confirms the preference in the answer', async () => {
    const answer = await post('/v1/sandboxes', smallRequest('clean'), STRICT);
    expect([answer.status, answer.headers.get('preference-applied')]).toEqual([200, 'handling=strict']);
    const changed = await client.request('PATCH', '/v1/sandboxes/by-name/clean', {
      body: { label: {} },
      headers: STRICT,
    });
    expect([changed.status, changed.body.error.details.field]).toEqual([400, 'label']);
    const plain = await post('/v1/sandboxes', smallRequest('plain'));
    expect(plain.headers.get('preference-applied')).toBeNull();
  });

  test.each([
    ['handling=strict', 'strict'],
    ['respond-async, Handling = "strict"; x=1', 'strict'],
    ['handling=lenient, handling=strict', 'lenient'],
    ['handling=harsh', undefined],
    ['return=minimal', undefined],
    [undefined, undefined],
  ])('is read from the header %j as %s', (header, handling) => expect(handlingOf(header)).toBe(handling));
});

test('the suggested name is a likely misspelling, or absent', () => {
  const known = ['resources', 'labels', 'lifecycle', 'env', 'init', 'idle_timeout_secs', 'vcpus'];
  const asked = [
    'resource',
    'lables',
    'LifeCycle',
    'environment',
    'x',
    'in',
    'timeout',
    'gpus',
    'cpus',
    'cpu',
  ];
  expect(asked.map((name) => nearestName(name, known))).toEqual([
    'resources',
    'labels',
    'lifecycle',
    undefined,
    undefined,
    undefined,
    'idle_timeout_secs',
    undefined,
    'vcpus',
    'vcpus',
  ]);
});
