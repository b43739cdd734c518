import { pino } from 'pino';
import { expect, test } from 'vitest';
import { openRuntime } from '../../../src/engines/open.js';
import { planRuntime } from '../../../src/engines/plan.js';
import { ENGINES } from '../../../src/engines/register.js';
import { until, untilStatus } from '../../support/polling.js';
import { startTestService } from '../../support/service.js';
import { tiny } from '../../support/tiny-engine.js';

const NOTHING_YET = { runtime: null, sandboxes: new Map<string, number>() };

test('an engine that is only added to the register runs a sandbox', async () => {
  const engines = [...ENGINES, tiny];
  const plan = planRuntime({ choice: 'tiny', change: false }, NOTHING_YET, engines);
  const service = await startTestService({
    async runtime(instanceId, volumes) {
      const surroundings = { instanceId, volumes, dataDir: '/nonexistent' };
      const opened = await openRuntime(plan, {}, surroundings, pino({ level: 'silent' }), engines);
      return opened.runtime;
    },
  });
  try {
    expect(service.runtime.description).toBe('hello');
    const client = await service.newOrg();
    const made = await client.post(
      '/v1/sandboxes',
      {
        name: 'one',
        image: { type: 'oci', reference: 'none:1' },
        resources: { vcpus: 1, memory_mib: 64 },
        runtime: { entrypoint: [], cmd: ['sh', '-c', 'echo from the tiny engine; exec sleep 600'] },
      },
      { start: true, wait_for: 'running' },
    );
    expect([made.status, made.body.status, made.body.runtime], made.text).toEqual([200, 'running', 'tiny']);
    const path = `/v1/sandboxes/${made.body.id}`;
    await until(
      () => client.get(`${path}/logs`),
      ({ text }) => text.includes('from the tiny engine'),
    );

    await client.post(`${path}/stop`, {});
    const { body: stopped } = await untilStatus(client, made.body.id, 'stopped');
    expect(Date.parse(stopped.stopped_at)).toBeGreaterThan(Date.parse(stopped.started_at));
    const { body: usage } = await client.get('/v1/billing/usage/sandbox');
    expect(JSON.stringify(usage)).toContain(made.body.id);
  } finally {
    await service.close();
  }
});
