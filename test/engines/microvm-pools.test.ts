import { rmSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { describeMicrovm } from '../support/microvm/needs.js';
import { destroyAll, IMAGE, makeMicrovmDirectory, onMicrovm } from '../support/microvm/service.js';
import { until } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';

const running = { start: true, wait_for: 'running', wait_timeout: 120 };
const MEMBER = {
  image: { type: 'oci', reference: IMAGE },
  pull_policy: 'never',
  resources: { vcpus: 1, memory_mib: 192 },
  network: { enabled: false },
};

describeMicrovm('a pool of virtual machines', () => {
  let dataDir: string;
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    dataDir = await makeMicrovmDirectory();
    service = await startTestService({ ...onMicrovm(dataDir), settings: { stopGraceMs: 20_000 } });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await client.delete('/v1/pools/own');
    await destroyAll(service, client);
    await service.close();
    rmSync(dataDir, { recursive: true, force: true });
  });

  const inside = async (id: string, script: string) => {
    const { body, text } = await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'sh', args: ['-c', script] });
    expect(body.exit_code, text).toBe(0);
    return body.stdout as string;
  };
  const BOOT = 'cat /proc/sys/kernel/random/boot_id';

  test('gives a machine that runs to a create with variables, and none to a create with a command', async () => {
    // The place of the member that is taken stays empty, so no third machine boots.
    const put = await client.request('PUT', '/v1/pools/own', { body: { ...MEMBER, size: 1, most: 1 } });
    expect(put.status, put.text).toBe(200);
    const pool = await until(
      async () => (await client.get('/v1/pools/own')).body,
      ({ ready, starting }) => ready === 1 && starting === 0,
    );
    const [member] = pool.sandboxes;

    const cmd = ['sh', '-c', 'echo ran > /srv/ran; exec sleep 600'];
    const { body: cold } = await client.post(
      '/v1/sandboxes',
      { ...MEMBER, name: 'commanded', runtime: { cmd } },
      running,
    );
    expect([cold.status, cold.source]).toEqual([
      'running',
      { start: 'cold', pool: 'own', reason: 'differs', differs: ['runtime.cmd'] },
    ]);
    expect(cold.id).not.toBe(member.id);
    await until(
      () => inside(cold.id, 'cat /srv/ran 2>/dev/null || true'),
      (text) => text === 'ran\n',
    );

    const env = [{ key: 'GREETING', value: 'hello there' }];
    const { body: warm } = await client.post('/v1/sandboxes', { ...MEMBER, name: 'mine', env }, running);
    expect([warm.id, warm.status, warm.source]).toEqual([
      member.id,
      'running',
      { start: 'warm', pool: 'own', reason: null, differs: [] },
    ]);
    expect(Date.parse(warm.started_at)).toBeLessThan(Date.parse(warm.created_at));
    expect(await inside(warm.id, 'echo "$GREETING"')).toBe('hello there\n');
    const boot = await inside(warm.id, BOOT);
    await client.post(`/v1/sandboxes/${warm.id}/stop`, {}, { wait_for: 'stopped', wait_timeout: 120 });
    await client.post(`/v1/sandboxes/${warm.id}/start`, {}, { wait_for: 'running', wait_timeout: 120 });
    expect(await inside(warm.id, 'echo "$GREETING"')).toBe('hello there\n');
    expect(await inside(warm.id, BOOT)).not.toBe(boot);
  });
});
