import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FULL_ACCESS } from '../../../src/access/access.js';
import { operator } from '../../../src/audit/events/actor.js';
import { createKey } from '../../../src/keys/create.js';
import { setQuotas } from '../../../src/quotas/set.js';
import { makeClient, type Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

const RANGES = ['20000-20039', '8080'];
const SYSTEM = operator('test');

let service: TestService;
let client: Client;
let other: Client;
beforeAll(async () => {
  service = await startTestService({
    settings: {
      publishedPorts: RANGES,
      publishedAddresses: ['0.0.0.0', '192.0.2.7', '2001:db8::7'],
      ephemeralLingerMs: 0,
    },
  });
  client = await service.newOrg();
  other = await service.newOrg();
});
afterAll(() => service.close());

const create = (name: string, ports: object[], more: object = {}, by = client) =>
  by.post('/v1/sandboxes', smallRequest(name, { network: { ports, ...more } }));
const published = async () =>
  (await service.ctx.pool.query('select * from published_ports')).rows.map(({ host_port }) => host_port);

test('shows the ports of the host at once, keeps them across runs, and releases them with the sandbox', async () => {
  const { body, status } = await client.post(
    '/v1/sandboxes',
    smallRequest('kept', {
      network: {
        ports: [
          { guest_port: 80 },
          { guest_port: 53, host_port: 8080, protocol: 'udp', host_bind: '127.0.0.3' },
        ],
      },
    }),
    { start: true, wait_for: 'running' },
  );
  expect(status).toBe(200);
  const [chosen, named] = body.spec.network.ports;
  expect(chosen).toEqual({
    guest_port: 80,
    host_port: expect.any(Number),
    host_bind: '127.0.0.2',
    protocol: 'tcp',
  });
  expect(chosen.host_port === 8080 || (chosen.host_port >= 20_000 && chosen.host_port <= 20_039)).toBe(true);
  expect(named).toEqual({ guest_port: 53, host_port: 8080, host_bind: '127.0.0.3', protocol: 'udp' });
  const query = { resource_id: body.id, event_type: 'sandbox_created' };
  const [event] = (await client.get('/v1/events', query)).body.data;
  expect(event.payload.published_ports).toEqual(body.spec.network.ports);
  await client.post(`/v1/sandboxes/${body.id}/stop`, undefined, { wait_for: 'stopped' });
  const again = await client.post(`/v1/sandboxes/${body.id}/start`, undefined, { wait_for: 'running' });
  expect(again.body.spec.network.ports).toEqual(body.spec.network.ports);
  expect((await client.get('/v1/quotas')).body).toMatchObject({
    published_ports: 2,
    max_published_ports: 256,
  });
  await client.delete(`/v1/sandboxes/${body.id}`);
  expect((await client.get('/v1/quotas')).body.published_ports).toBe(0);
  expect(await published()).toEqual([]);
});

test('an ephemeral sandbox releases its ports when it is removed', async () => {
  const { body } = await client.post(
    '/v1/sandboxes',
    smallRequest('short', { network: { ports: [{ guest_port: 80 }] }, lifecycle: { ephemeral: true } }),
    { start: true, wait_for: 'running' },
  );
  expect(await published()).toHaveLength(1);
  await client.post(`/v1/sandboxes/${body.id}/stop`);
  await until(published, (ports) => ports.length === 0);
});

test('names the holder of a taken port to its own organization alone', async () => {
  const port = { guest_port: 80, host_port: 20_001 };
  const { body: holder } = await create('holder', [port]);
  const mine = await create('second', [port]);
  expect([mine.status, mine.body.error]).toEqual([
    409,
    {
      code: 'port_taken',
      message: expect.stringContaining('the sandbox "holder" has tcp port 20001 of 127.0.0.2'),
      details: {
        field: 'network.ports[0].host_port',
        protocol: 'tcp',
        host_bind: '127.0.0.2',
        host_port: 20_001,
        sandbox_id: holder.id,
        sandbox: 'holder',
      },
    },
  ]);
  const theirs = await create('second', [port], {}, other);
  expect(theirs.status).toBe(409);
  expect(JSON.stringify(theirs.body)).not.toMatch(new RegExp(`holder|${holder.id}|${client.org.id}`));
  // An address that stands for all of its family has the port of each.
  expect((await create('every', [{ ...port, host_bind: '0.0.0.0' }])).body.error.details.sandbox_id).toBe(
    holder.id,
  );
  for (const more of [{ protocol: 'udp' }, { host_bind: '127.0.0.3' }, { host_bind: '192.0.2.7' }]) {
    const { body, status } = await create('beside', [{ ...port, ...more }], {}, other);
    expect([more, status]).toEqual([more, 200]);
    await other.delete(`/v1/sandboxes/${body.id}`);
  }
  // Nor to a key that may not see the holder.
  const access = { ...FULL_ACCESS, scopes: ['sandboxes:write' as const], labels: { team: 'ml' } };
  const { id, key } = await createKey(service.ctx.pool, client.org.id, 'narrow', SYSTEM, access);
  const narrow = makeClient(service.url, { org: client.org, key, keyId: id });
  expect((await create('narrow', [port], {}, narrow)).body.error.details).not.toHaveProperty('sandbox_id');
  await client.delete(`/v1/sandboxes/${holder.id}`);
  expect((await create('second', [port], {}, other)).status).toBe(200);
});

test('concurrent creates never get one port, and are refused when there is none', async () => {
  const before = (await published()).length;
  const answers = await Promise.all(
    Array.from({ length: 45 }, async (_, index) =>
      create(
        `crowd-${index}`,
        [{ guest_port: 80, host_bind: '0.0.0.0' }],
        {},
        index % 2 === 0 ? client : other,
      ),
    ),
  );
  const ports = answers.flatMap(
    ({ body }) => body.spec?.network.ports.map((port: any) => port.host_port) ?? [],
  );
  expect(new Set(ports).size).toBe(ports.length);
  expect(ports.length).toBe(41 - before);
  const refused = answers.filter(({ status }) => status !== 200);
  expect(refused.map(({ status, body }) => [status, body.error.code])).toEqual(
    refused.map(() => [409, 'port_taken']),
  );
  for (const [index, { body, status }] of answers.entries())
    if (status === 200) await (index % 2 === 0 ? client : other).delete(`/v1/sandboxes/${body.id}`);
});

test('one sandbox gets as many ports as there are, none of them twice', async () => {
  const many = await create(
    'many',
    Array.from({ length: 40 }, (_, index) => ({
      guest_port: index + 1,
      host_bind: index % 2 === 0 ? '0.0.0.0' : '192.0.2.7',
    })),
    {},
    other,
  );
  expect(many.status, many.text).toBe(200);
  const ports = many.body.spec.network.ports.map(({ host_port }: any) => host_port);
  expect(new Set(ports).size).toBe(40);
  await other.delete(`/v1/sandboxes/${many.body.id}`);
});

test('a quota bounds the ports of an organization', async () => {
  const bounded = await service.newOrg();
  await setQuotas(service.ctx.pool, bounded.org.id, { max_published_ports: 2 }, SYSTEM);
  const answers = await Promise.all(
    [1, 2, 3].map(async (port) => create(`bounded-${port}`, [{ guest_port: port }], {}, bounded)),
  );
  expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 200, 403]);
  const { error } = answers.find(({ status }) => status === 403)!.body;
  expect(error.details).toEqual({ quota: 'max_published_ports', limit: 2, used: 2 });
});

describe('refuses', () => {
  const rule = (action: string, destination: unknown, more: object = {}) => ({
    direction: 'ingress',
    destination,
    action,
    ...more,
  });
  const policy = (...rules: object[]) => ({ policy: { default_egress: 'allow', rules } });
  const on80 = { protocols: ['tcp'], ports: [{ start: 80, end: 80 }] };
  const OUTSIDE = { host_bind: '192.0.2.7' };
  const V6 = { host_bind: '2001:db8::7' };

  test.each<[string, object[], object, string]>([
    ['port 0 of the guest', [{ guest_port: 0 }], {}, 'network.ports[0].guest_port'],
    ['a port beyond the last', [{ guest_port: 80, host_port: 65_536 }], {}, 'network.ports[0].host_port'],
    ['a port of the machine', [{ guest_port: 80, host_port: 22 }], {}, 'network.ports[0].host_port'],
    ['another address', [{ guest_port: 80, host_bind: '192.0.2.8' }], {}, 'network.ports[0].host_bind'],
    ['every address of IPv6', [{ guest_port: 80, host_bind: '::' }], {}, 'network.ports[0].host_bind'],
    // Browsers would send the cookies of the console and of previews there.
    ['localhost', [{ guest_port: 80, host_bind: '127.0.0.1' }], {}, 'network.ports[0].host_bind'],
    ['localhost of IPv6', [{ guest_port: 80, host_bind: '0::1' }], {}, 'network.ports[0].host_bind'],
    ['a name', [{ guest_port: 80, host_bind: 'localhost' }], {}, 'network.ports[0].host_bind'],
    ['IPv4 in IPv6', [{ guest_port: 80, host_bind: '::ffff:127.0.0.1' }], {}, 'network.ports[0].host_bind'],
    [
      'a port twice',
      [
        { guest_port: 80, host_port: 8080 },
        { guest_port: 81, host_port: 8080, host_bind: '0.0.0.0' },
      ],
      {},
      'network.ports[1].host_port',
    ],
    ['no network', [{ guest_port: 80 }], { enabled: false }, 'network.ports[0].guest_port'],
    ['a policy that denies it', [{ guest_port: 80 }], policy(), 'network.ports[0].guest_port'],
    [
      'a policy that denies it to all',
      [{ guest_port: 80 }],
      policy(rule('deny', 'any', on80), rule('allow', 'any')),
      'network.ports[0].guest_port',
    ],
    [
      'a policy that denies it to the machine',
      [{ guest_port: 80 }],
      policy(rule('allow', { group: 'public' })),
      'network.ports[0].guest_port',
    ],
    [
      'sources that an address of IPv6 hides',
      [{ guest_port: 80, ...V6 }],
      policy(rule('allow', { cidr: '203.0.113.0/24' })),
      'network.ports[0].host_bind',
    ],
  ])('%s', async (_, ports, more, field) => {
    const { status, body } = await create('refused', ports, more);
    expect([status, body.error.code, body.error.details.field]).toEqual([
      400,
      'invalid_sandbox_config',
      field,
    ]);
  });

  test.each<[string, object[], object]>([
    ['a group', [{ guest_port: 80 }], policy(rule('allow', { group: 'host' }, on80))],
    ['a block', [{ guest_port: 80 }], policy(rule('allow', { cidr: '172.16.0.0/12' }))],
    ['public sources', [{ guest_port: 80, ...OUTSIDE }], policy(rule('allow', { group: 'public' }))],
    [
      'another port',
      [{ guest_port: 80, ...V6 }],
      policy(
        rule('deny', { group: 'public' }, { ports: [{ start: 81, end: 81 }], protocols: ['tcp'] }),
        rule('allow', 'any'),
      ),
    ],
  ])('not: %s', async (name, ports, more) => {
    const { status, body } = await create(`allowed-${name.replaceAll(' ', '-')}`, ports, more);
    expect([status, body.error]).toEqual([200, undefined]);
  });
});
