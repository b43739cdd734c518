import { afterAll, beforeAll, expect, test } from 'vitest';
import { sleep } from '../../../src/lib/sleep.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
beforeAll(async () => {
  service = await startTestService();
  // An engine that loses the record of a run while it stops it.
  service.runtime.stop = (sandboxId) => service.runtime.destroy(sandboxId);
});
afterAll(() => service.close());

const WAIT = { start: true, wait_for: 'running', wait_timeout: 90 };

test('a run whose record is lost in its stop ends when its stop began, not when it was last noted', async () => {
  const client = await service.newOrg();
  const { body } = await client.post('/v1/sandboxes', smallRequest('box'), WAIT);
  // The next note of all runs is due after ten seconds.
  await sleep(2_000);
  await client.post(`/v1/sandboxes/${body.id}/stop`, {});
  const { body: stopped } = await until(
    () => client.get(`/v1/sandboxes/${body.id}`),
    ({ body: now }) => ['stopped', 'failed'].includes(now.status),
    20_000,
  );
  const ranMs = Date.parse(stopped.stopped_at) - Date.parse(stopped.started_at);
  expect(ranMs).toBeGreaterThan(1_000);
});
