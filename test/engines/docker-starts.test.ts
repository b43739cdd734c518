import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { destroyAll, onDocker } from '../support/docker-service.js';
import { describeDocker, IMAGE, makeImage } from '../support/docker.js';
import { untilStatus } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';

const STARTS = 16;

describeDocker('starts on one engine', () => {
  let service: TestService;
  let busy: Client;
  let late: Client;
  beforeAll(async () => {
    makeImage();
    service = await startTestService({
      ...onDocker({ capacity: { vcpus: 100 } }),
      settings: { stopGraceMs: 0 },
    });
    [busy, late] = [await service.newOrg(), await service.newOrg()];
  });
  afterAll(async () => {
    await destroyAll(service, busy, late);
    await service.close();
  });

  test('by one organization do not delay the first of another', async () => {
    const request = (name: string) => ({
      name,
      image: { type: 'oci', reference: IMAGE },
      pull_policy: 'never',
      runtime: { cmd: ['sleep', '600'] },
      resources: { vcpus: 1, memory_mib: 16 },
      network: { enabled: false },
    });
    const many = await Promise.all(
      Array.from({ length: STARTS }, (_, index) =>
        busy.post('/v1/sandboxes', request(`busy-${index}`), { start: true }),
      ),
    );
    const { body } = await late.post('/v1/sandboxes', request('late'), { start: true });
    const posted = new Date();
    await untilStatus(late, body.id, 'running', 20_000);
    for (const { body: each } of many) await untilStatus(busy, each.id, 'running', 20_000);
    const held = (await service.runtime.list()).toSorted((a, b) => (a.startedAt! < b.startedAt! ? -1 : 1));
    const before = held.slice(
      0,
      held.findIndex(({ sandboxId }) => sandboxId === body.id),
    );
    // A slow machine starts some before it takes the last request.
    const between = before.filter(({ startedAt }) => new Date(startedAt!) > posted);
    expect(held).toHaveLength(STARTS + 1);
    // Some were under way, and some ended between.
    expect(between.length).toBeLessThan(STARTS - 6);
  });
});
