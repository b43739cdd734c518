import { afterAll, beforeAll, expect, test } from 'vitest';
import { startTestService, type TestService } from './support/service.js';

let service: TestService;
beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => service.close());

test('a sandbox runs and is read back', async () => {
  const client = await service.newOrg();
  const made = await client.post(
    '/v1/sandboxes',
    { name: 'a', image: { type: 'oci', reference: 'busybox' } },
    { start: true, wait_for: 'running' },
  );
  expect(made.status, made.text).toBe(200);
  expect(made.body.status).toBe('running');
  expect((await client.get('/v1/sandboxes')).body.data).toHaveLength(1);
});
