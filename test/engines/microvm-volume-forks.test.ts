import { rmSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { describeMicrovm } from '../support/microvm/needs.js';
import { destroyAll, IMAGE, makeMicrovmDirectory, onMicrovm, shIn } from '../support/microvm/service.js';
import { until } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';
import { capture, forked } from '../support/snapshots.js';

describeMicrovm('forks of a virtual machine with volumes', () => {
  let dataDir: string;
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    dataDir = await makeMicrovmDirectory();
    service = await startTestService({ ...onMicrovm(dataDir), settings: { stopGraceMs: 20_000 } });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
    rmSync(dataDir, { recursive: true, force: true });
  });

  const inside = async (id: string, script: string) => shIn(service, id, script);

  test('share them when asked to, have disks of their own, and a snapshot has nothing of a volume', async () => {
    await client.post('/v1/volumes', { name: 'data' });
    const mounts = [
      { type: 'named', name: 'data', guest: '/data' },
      { type: 'named', name: 'data', guest: '/readonly', options: { readonly: true } },
    ];
    const { body: source } = await client.post(
      '/v1/sandboxes',
      {
        name: 'source',
        image: { type: 'oci', reference: IMAGE },
        pull_policy: 'never',
        resources: { vcpus: 1, memory_mib: 192 },
        network: { enabled: false },
        mounts,
      },
      { start: true, wait_for: 'running', wait_timeout: 120 },
    );
    expect(source.status, JSON.stringify(source)).toBe('running');
    // The file server works meanwhile, and the disk is captured while the processors stand still.
    await inside(
      source.id,
      'echo volume > /data/file; echo disk > /srv/file; (while :; do date > /data/busy; done) > /dev/null 2>&1 &',
    );
    const refused = await client.post(`/v1/sandboxes/${source.id}/fork`, { count: 2 });
    expect([refused.status, refused.body.error?.details]).toEqual([400, { field: 'volumes' }]);
    const { body, text } = await client.post(`/v1/sandboxes/${source.id}/fork`, {
      count: 2,
      volumes: 'share',
    });
    expect(body.status, text).toBe('queued');
    expect((await forked(client, body.id))['error']).toBeNull();
    const copies = await until(
      async () => (await client.get(`/v1/fork-operations/${body.id}`)).body.sandboxes as any[],
      (found) => found.every(({ status }) => status !== 'starting'),
      120_000,
    );
    expect(copies.map(({ status }) => status)).toEqual(['running', 'running']);
    const [one, two] = copies.map(({ id }) => id as string) as [string, string];
    expect(
      await inside(one, 'cat /srv/file /data/file; echo from one > /data/one; echo own > /srv/file'),
    ).toBe('disk\nvolume');
    const seen = 'cat /readonly/one /srv/file; touch /readonly/x 2>&1 || true';
    for (const id of [two, source.id]) {
      const answer = await until(
        () => inside(id, seen).catch(() => ''),
        (found) => found !== '',
      );
      expect(answer).toBe('from one\ndisk\ntouch: /readonly/x: Read-only file system');
    }
    // The source writes on.
    const before = await inside(two, 'cat /data/busy');
    await until(
      () => inside(two, 'cat /data/busy'),
      (now) => now !== before && now !== '',
    );
    const snapshot = await capture(client, source.id, 'of-source');
    expect(snapshot['error']).toBeNull();
    const { body: bare } = await client.post(
      '/v1/sandboxes',
      {
        name: 'bare',
        image: { type: 'disk_snapshot', id: 'of-source' },
        resources: { vcpus: 1, memory_mib: 192 },
        network: { enabled: false },
      },
      { start: true, wait_for: 'running', wait_timeout: 120 },
    );
    expect(bare.status, JSON.stringify(bare)).toBe('running');
    expect(await inside(bare.id, 'cat /srv/file; ls /data /readonly')).toBe('disk\n/data:\n\n/readonly:');
    await client.delete('/v1/snapshots/by-name/of-source');
  });
});
