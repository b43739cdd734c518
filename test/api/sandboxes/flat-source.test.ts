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
      ...[400, 'the source of a sandbox must be "oci", with its "reference"'],
    ]);
  }
  const wrong = await client.post('/v1/sandboxes', { name: 'other', source: 'oci', reference: 7 });
  expect(wrong.status).toBe(400);
});
