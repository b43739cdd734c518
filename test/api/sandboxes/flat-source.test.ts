import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService();
  client = await service.newOrg();
});
afterAll(() => service.close());

test('a create request may have the image as "source" and "reference"', async () => {
  const flat = {
    name: 'flat',
    source: 'oci',
    reference: 'python:3.12',
    resources: { vcpus: 1, memory_mib: 128 },
  };
  const { status, body } = await client.post('/v1/sandboxes', flat);
  expect([status, body.spec?.image]).toEqual([200, 'python:3.12']);
  expect(body.warnings ?? []).toEqual([]);
  const nested = {
    name: 'nested',
    image: { type: 'oci', reference: 'python:3.13' },
    source: 'oci',
    reference: 'x',
  };
  const both = await client.post('/v1/sandboxes', nested);
  expect(both.text).toContain('python:3.13');
});

test('another source is refused, and so is a missing reference', async () => {
  for (const part of [
    { source: 'snapshot', snapshot: 'one' },
    { source: 'oci' },
    { source: 7, reference: 'x' },
  ]) {
    const { status, body } = await client.post('/v1/sandboxes', { name: 'other', ...part });
    expect([status, body.error.message]).toEqual([
      400,
      'the source of a sandbox must be "oci", with its "reference", or "disk_snapshot", with its "disk_snapshot_ref"',
    ]);
  }
  const wrong = await client.post('/v1/sandboxes', { name: 'other', source: 'oci', reference: 7 });
  expect(wrong.status).toBe(400);
});

test('the policies of secrets that clients from 0.7 send are kept to the letter', async () => {
  const host = { type: 'exact', value: 'api.example.com' };
  const entry = { value: 'x', placeholder: '$P', allowed_hosts: [host] };
  const entries = [
    {
      ...entry,
      env_var: 'A',
      substitution: { headers: true, header_fields: ['authorization'], query: true, body: false },
      passthrough_hosts: [host],
      violation_action: { type: 'block_and_terminate' },
      require_tls_identity: false,
    },
    { ...entry, env_var: 'B', placeholder: '$Q', passthrough_hosts: [], substitution: { headers: false } },
  ];
  const secrets = { entries, violation_action: { type: 'block' }, passthrough_hosts: [{ type: 'any' }] };
  const request = { name: 'secretive', source: 'oci', reference: 'busybox', network: { secrets } };
  const { status, body, text } = await client.post('/v1/sandboxes', request);
  expect([status, body.warnings], text).toEqual([200, undefined]);
  const shown = { placeholder: '$P', allowed_hosts: [host] };
  expect(body.spec.network.secrets).toEqual([
    {
      ...shown,
      env_var: 'A',
      injection: {
        headers: true,
        basic_auth: true,
        query_params: true,
        body: false,
        header_fields: ['authorization'],
      },
      on_violation: { type: 'block_and_terminate', passthrough_hosts: [host] },
      require_tls_identity: false,
    },
    {
      ...shown,
      placeholder: '$Q',
      env_var: 'B',
      injection: { headers: false, basic_auth: false, query_params: false, body: false },
      on_violation: { type: 'block' },
    },
  ]);
  const both = { ...entries[0], injection: {} };
  const refused = await client.post('/v1/sandboxes', {
    ...request,
    name: 'both',
    network: { secrets: { entries: [both] } },
  });
  expect(refused.body.error.details).toEqual({ field: 'network.secrets.entries[0].substitution' });
});

test('a limit of UDP flows is kept where it is recorded; none and zero are no limit', async () => {
  for (const [limit, shown] of [
    [7, 7],
    [0, undefined],
    [null, undefined],
  ]) {
    const network = { max_udp_connections: limit };
    const { body, text } = await client.post('/v1/sandboxes', {
      name: `udp-${limit}`,
      source: 'oci',
      reference: 'busybox',
      network,
    });
    expect(body.spec?.network.max_udp_connections, text).toBe(shown);
  }
});
