import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { docker } from '../../src/engines/docker/engine.js';
import { unitOf } from '../../src/cli/install-unit.js';
import { runJson } from '../support/cli.js';
import { makeClient } from '../support/client.js';
import { describeDocker, IMAGE, makeImage, SOCKET } from '../support/docker.js';
import { until } from '../support/polling.js';
import { cleanUp, launch, makeFolder, ready, stop } from '../support/processes.js';

/** The command line that gives a process the rights of the unit, where systemd is not process 1. */
function underRightsOfUnit(): string[] {
  const unit = unitOf({ runtime: docker, dataDir: '/data', node: '/node', program: '/program' });
  const kept = [...unit.matchAll(/^CapabilityBoundingSet=(.+)$/gm)].flatMap(([, names]) => names!.split(' '));
  expect(kept.length).toBeGreaterThan(5);
  expect(unit).toContain('NoNewPrivileges=yes');
  const names = kept.map((name) => `+${name.replace('CAP_', '').toLowerCase()}`);
  return ['setpriv', `--bounding-set=-all,${names.join(',')}`, '--no-new-privs'];
}

describeDocker('the capabilities of the systemd unit', () => {
  let folder: string;
  beforeAll(() => {
    makeImage();
    folder = makeFolder();
  });
  afterAll(() => cleanUp(folder));

  test('suffice for networks, volumes and the embedded PostgreSQL', async () => {
    const dataDir = join(folder, 'data');
    const args = ['serve', '--json', '--port', '0', '--data-dir', dataDir, '--log-level', 'warn'];
    const docker = ['--runtime', 'docker', '--docker-socket', SOCKET];
    const service = await ready(launch([...args, ...docker], { under: underRightsOfUnit() }), dataDir);
    const client = makeClient(service.url, {
      org: { id: '', name: '', slug: '' },
      key: service.firstKey!,
      keyId: '',
    });
    const { body: volume } = await client.post('/v1/volumes', { name: 'data', capacity_gib: 1 });
    // The second rule needs the gateway.
    const rules = [{ group: 'public' }, { domain: 'api.example.com' }].map((destination) => ({
      action: 'allow',
      direction: 'egress',
      destination,
    }));
    const { body } = await client.post(
      '/v1/sandboxes',
      {
        name: 'full',
        image: { type: 'oci', reference: IMAGE },
        pull_policy: 'never',
        network: { enabled: true, policy: { rules } },
        mounts: [{ type: 'named', name: 'data', guest: '/data' }],
        runtime: { user: '1234' },
      },
      { start: true, wait_for: 'running', wait_timeout: 120 },
    );
    expect(body.status, JSON.stringify(body)).toBe('running');
    const script = 'echo written > /data/file; cat /data/file; ls /sys/class/net';
    const { body: ran } = await client.post(`/v1/sandboxes/${body.id}/exec`, {
      cmd: 'sh',
      args: ['-c', script],
    });
    expect(ran.stdout, JSON.stringify(ran)).toBe('written\neth0\ngw0\nlo\n');
    expect((await client.patch(`/v1/volumes/${volume.id}`, { capacity_gib: 2 })).status).toBe(200);
    const stopped = await client.post(
      `/v1/sandboxes/${body.id}/stop`,
      {},
      { wait_for: 'stopped', wait_timeout: 120 },
    );
    expect(stopped.body.status, JSON.stringify(stopped.body)).toBe('stopped');
    const again = await client.post(
      `/v1/sandboxes/${body.id}/start`,
      {},
      { wait_for: 'running', wait_timeout: 120 },
    );
    expect(again.body.status, JSON.stringify(again.body)).toBe('running');
    const { body: sized } = await client.post(`/v1/sandboxes/${body.id}/exec`, {
      cmd: 'sh',
      args: ['-c', 'busybox df -m /data | tail -n 1'],
    });
    expect(sized, JSON.stringify(sized)).toMatchObject({ exit_code: 0 });
    expect(Number(sized.stdout.trim().split(/ +/)[1]), sized.stdout).toBeGreaterThan(1_900);
    await client.delete(`/v1/sandboxes/${body.id}`);
    // The list is empty before the engine is.
    const containers = ['ps', '--all', '--quiet', '--filter', `label=dev.sandkeep.sandbox=${body.id}`];
    await until(
      () => Promise.resolve(spawnSync('docker', containers, { encoding: 'utf8' }).stdout),
      (ids) => ids === '',
      60_000,
    );
    const file = join(folder, 'backup.tar.gz');
    expect(await runJson(['backup', file, '--data-dir', dataDir])).toMatchObject({ volumes: 1 });
    const found = spawnSync('sh', ['-c', `gzip -dc '${file}' | grep -c '^written'`], { encoding: 'utf8' });
    expect(found.stdout).toBe('1\n');
    const findings = await runJson(['doctor', ...docker, '--data-dir', dataDir]);
    expect(findings.find(({ check }: any) => check === 'volume caps').state).toBe('ok');
    expect(findings.find(({ check }: any) => check === 'gateway').state).toBe('ok');
    expect(await stop(service)).toBe(0);
  });
});
