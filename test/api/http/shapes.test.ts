import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Client } from '../../support/client.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService();
  client = await service.newOrg();
});
afterAll(() => service.close());

const DESTINATIONS = [
  '{"cidr": "203.0.113.0/24"}',
  '{"domain": "api.example.com"}',
  '{"domain_suffix": "example.com"}',
  '{"group": "public"}',
].join(', ');
const rule = (destination: unknown) => ({
  network: { policy: { rules: [{ direction: 'egress', action: 'allow', destination }] } },
});

describe('a refusal shows the shape that is wanted', () => {
  test.each<[part: Record<string, unknown>, message: string]>([
    [{ image: 'python:3' }, 'image must be an object, such as {"type": "oci", "reference": "python:3.12"}'],
    [{ labels: [] }, 'labels must be an object, such as {"…": "…"}'],
    [{ resources: 4 }, 'resources must be an object, such as {"vcpus": 1, "memory_mib": 512}'],
    [{ resources: { vcpus: '4' } }, 'resources.vcpus must be a whole number'],
    [{ runtime: { cmd: 'ls' } }, 'runtime.cmd must be a list or null, such as ["…"]'],
    [
      { mounts: [{ type: 'volume', guest: '/x' }] },
      'mounts[0].type must be one of bind, named, tmpfs, disk_image',
    ],
    [{ mounts: [{ guest: '/x' }] }, 'mounts[0].type is required: one of bind, named, tmpfs, disk_image'],
    [{ image: undefined }, 'image is required, such as {"type": "oci", "reference": "python:3.12"}'],
    [{ registry: { mode: 'password' } }, 'registry.mode must be one of auto, anonymous, specific, inline'],
    [{ env: 'A=1' }, 'env has none of its forms: [{"key": "LANG", "value": "C.UTF-8"}], {"LANG": "C.UTF-8"}'],
    [{ env: { A: 1 } }, 'env.A must be a string'],
    [{ env: [{ key: 'A', value: 1 }] }, 'env[0].value must be a string'],
    [
      rule('example.com'),
      `network.policy.rules[0].destination has none of its forms: "any", ${DESTINATIONS}`,
    ],
    [rule({ ip: 'x' }), `network.policy.rules[0].destination has none of its forms: "any", ${DESTINATIONS}`],
    [
      rule({ domain: 'example.com', ports: [] }),
      'there is no field "network.policy.rules[0].destination.ports"; there are cidr, domain, domain_suffix, group',
    ],
    [
      rule({ domain: 'example.com', ports: null }),
      `there is no destination by "ports"; there are ${DESTINATIONS}, and "any"`,
    ],
  ])('%j', async (part, message) => {
    const { status, body } = await client.post('/v1/sandboxes', { ...smallRequest('shape'), ...part });
    expect([status, body.error?.message]).toEqual([400, message]);
  });

  test('a list of any depth is a sample that passes, if it has no text of the caller', async () => {
    const wrong = await client.post('/v1/sandboxes', { ...smallRequest('passes'), network: [] });
    const sample = /such as (\{.*\})$/.exec(wrong.body.error.message as string)![1]!;
    const right = await client.post('/v1/sandboxes', smallRequest('passes', { network: JSON.parse(sample) }));
    expect(right.status, right.text).toBe(200);
  });
});

describe('two forms of one request', () => {
  test('variables are a list or a map', async () => {
    const env = [
      { key: 'A', value: '1' },
      { key: 'B', value: '' },
    ];
    for (const [name, form] of Object.entries({ list: env, map: { A: '1', B: '' } })) {
      const { body, text } = await client.post('/v1/sandboxes', smallRequest(`env-${name}`, { env: form }));
      expect(body.spec?.env, text).toEqual(env);
    }
    const bad = await client.post('/v1/sandboxes', smallRequest('env-bad', { env: { 'A=': '1' } }));
    expect(bad.body.error.details.field).toBe('env[0].key');
    const many = Object.fromEntries(Array.from({ length: 513 }, (_, index) => [`N${index}`, '']));
    expect((await client.post('/v1/sandboxes', smallRequest('env-many', { env: many }))).status).toBe(400);
  });

  test('words of an answer can be sent again', async () => {
    await client.post('/v1/volumes', { name: 'words' });
    const first = await client.post('/v1/sandboxes', {
      ...smallRequest('words-1'),
      mounts: [
        { type: 'named', name: 'words', guest: '/a' },
        { type: 'disk_image', host: 'x', guest: '/b', format: 'qcow2' },
      ],
      rlimits: [{ resource: 'nofile', soft: 1, hard: 2 }],
    });
    const { mounts, rlimits } = first.body.spec;
    expect([mounts[0].type, mounts[1].type, mounts[1].format, rlimits[0].resource]).toEqual([
      'Named',
      'DiskImage',
      'Qcow2',
      'Nofile',
    ]);
    const again = await client.post('/v1/sandboxes', {
      ...smallRequest('words-2'),
      mounts: [mounts[0], { ...mounts[1], host: 'x' }],
      rlimits,
    });
    expect(again.body.spec?.mounts, again.text).toEqual(mounts);
  });

  test('the path of a file is text in the query, or base64url in a header', async () => {
    const { body: volume } = await client.post('/v1/volumes', { name: 'paths' });
    const base = `/v1/volumes/${volume.id}/files`;
    const path = '/a b/ü&.txt';
    const header = { 'x-msb-file-path': Buffer.from(path).toString('base64url') };
    const octets = { 'content-type': 'application/octet-stream' };
    const ask = (method: string, at: string, query: string | undefined, headers = {}, body?: string) =>
      client.request(method, `${base}${at}`, {
        ...(query === undefined ? {} : { query: { path: query } }),
        headers,
        body,
      });
    expect((await ask('PUT', '/content', path, octets, 'hello')).status).toBe(200);
    for (const answer of [
      await ask('GET', '/content', path),
      await ask('GET', '/content', undefined, header),
    ])
      expect([answer.status, answer.text]).toEqual([200, 'hello']);
    expect((await ask('GET', '', '/a b')).body.entries).toMatchObject([{ path: '/a b/ü&.txt' }]);
    expect((await ask('GET', '/stat', path)).body.metadata.size).toBe(5);
    expect((await ask('GET', '/exists', path)).body).toEqual({ exists: true });
    const both = await ask('GET', '/stat', path, header);
    const none = await ask('GET', '/stat', undefined);
    expect([both, none].map(({ status, body }) => [status, body.error.details])).toEqual([
      [400, { parameter: 'path' }],
      [400, { parameter: 'path' }],
    ]);
    expect(none.body.error.message).toContain('?path=');
    expect((await ask('DELETE', '', '../x')).status).toBe(400);
    expect((await ask('DELETE', '', path)).status).toBe(200);
    expect((await ask('GET', '/exists', path)).body).toEqual({ exists: false });
  });
});
