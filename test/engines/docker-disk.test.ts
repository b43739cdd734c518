import Docker from 'dockerode';
import { execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import type { Client } from '../support/client.js';
import { destroyAll, onDocker } from '../support/docker-service.js';
import { describeDocker, IMAGE, makeImage, SOCKET } from '../support/docker.js';
import { startTestService, type TestService } from '../support/service.js';
import { until } from '../support/polling.js';

/** This engine keeps its containers on a btrfs of its own, because the engine of the other tests may lack quotas. */
const describeBtrfs = btrfsIsMissing() ? describe.skip : describeDocker;

function btrfsIsMissing(): boolean {
  spawnSync('modprobe', ['btrfs']);
  const known = /\bbtrfs$/m.test(readFileSync('/proc/filesystems', 'utf8'));
  if (!known) console.warn('the tests of disk sizes are SKIPPED: this kernel has no btrfs');
  return !known;
}

/** The commands of docs/runtimes.md for an engine below `directory`, which the test starts itself. */
function recipe(directory: string): string {
  const page = readFileSync(join(PACKAGE_ROOT, 'docs', 'runtimes.md'), 'utf8');
  const [, lines = ''] = /runs these lines -->\s+```sh\n(.+?)```/s.exec(page) ?? [];
  expect(lines).toContain('mkfs.btrfs');
  return lines
    .replaceAll(/^systemctl .*\n/gm, '')
    .replaceAll('/var/lib/docker', join(directory, 'docker'))
    .replaceAll('/etc/fstab', join(directory, 'fstab'))
    .replaceAll('/etc/docker', join(directory, 'etc'))
    .replace(/^mount /m, `mount --fstab ${join(directory, 'fstab')} `);
}

describeBtrfs('disks with a size', () => {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-engine-'));
  const root = join(directory, 'docker-btrfs');
  const socketPath = join(directory, 'engine.sock');
  const docker = new Docker({ socketPath });
  let engine: ChildProcess | undefined;
  let service: TestService | undefined;
  let client: Client;

  beforeAll(async () => {
    makeImage();
    mkdirSync(join(directory, 'etc'));
    execFileSync('sh', ['-e', '-c', recipe(directory)], { stdio: ['ignore', 'ignore', 'inherit'] });
    // The engine has its own network namespace: it would remove the bridge of the machine's engine as stale.
    engine = spawn(
      'unshare',
      [
        '--net',
        'dockerd',
        '--host',
        `unix://${socketPath}`,
        '--config-file',
        join(directory, 'etc', 'daemon.json'),
        '--exec-root',
        join(directory, 'exec'),
        '--pidfile',
        join(directory, 'pid'),
        '--bridge',
        'none',
        '--iptables=false',
        '--ip-masq=false',
      ],
      { stdio: 'ignore' },
    );
    await until(
      () => docker.ping().catch(() => undefined),
      (answer) => answer !== undefined,
      30_000,
    );
    const copy = 'docker -H "unix://$1" save "$3" | docker -H "unix://$2" load';
    execFileSync('sh', ['-c', copy, 'sh', SOCKET, socketPath, IMAGE], { stdio: 'ignore' });
    await withVolume('sandkeep-test:volume', IMAGE);
    service = await startTestService(onDocker({ socketPath, defaultDiskMib: 30 }));
    client = await service.newOrg();
  });
  afterAll(async () => {
    if (service) {
      await destroyAll(service, client);
      await service.close();
    }
    const ended = new Promise((resolve) => engine?.once('exit', resolve));
    engine?.kill();
    await ended;
    execFileSync('umount', ['--lazy', root]);
    rmSync(directory, { recursive: true, force: true });
  });

  async function withVolume(tag: string, base: string): Promise<void> {
    const made = await docker.createContainer({ Image: base, Cmd: ['sleep', '600'] });
    await made.commit({ repo: tag.split(':')[0], tag: tag.split(':')[1], changes: ['VOLUME /declared'] });
    await made.remove();
  }

  async function start(name: string, spec: Record<string, unknown>): Promise<any> {
    const image = { type: 'oci', reference: IMAGE };
    const body = { name, image, pull_policy: 'never', network: { enabled: false }, ...spec };
    const query = { start: true, wait_for: 'running', wait_timeout: 120 };
    const answer = await client.post('/v1/sandboxes', body, query);
    expect(answer.status, answer.text).toBe(200);
    return answer.body;
  }

  test('need quotas of the engine, which the service probes without a trace', async () => {
    expect(service!.runtime.capabilities.has('disk_size')).toBe(true);
    const tags = (await docker.listImages()).flatMap(({ RepoTags }) => RepoTags ?? []);
    const others = tags.filter((tag) => !tag.startsWith('sandkeep/init:'));
    expect(others.toSorted()).toEqual([IMAGE, 'sandkeep-test:volume'].toSorted());
    const containers = await docker.listContainers({ all: true });
    expect(containers.map(({ Labels }) => Labels['dev.sandkeep.init'])).toEqual(['container']);
  });

  test('limit the writes of a sandbox to their size, and offer that size', async () => {
    const script =
      'dd if=/dev/zero of=/most bs=1M count=15; dd if=/dev/zero of=/more bs=1M count=15; sleep 600';
    const { id, status } = await start('small', {
      resources: { disk_size_mib: 20 },
      runtime: { cmd: ['sh', '-c', `(${script}) > /dev/null 2> /log/all`] },
      mounts: [{ type: 'tmpfs', guest: '/log' }],
    });
    expect(status).toBe('running');
    const [held] = await docker.listContainers({ filters: { label: [`dev.sandkeep.sandbox=${id}`] } });
    const look = async () => {
      const exec = await docker.getContainer(held!.Id).exec({
        // The sizes are those after the errors.
        Cmd: ['sh', '-c', 'all=$(cat /log/all); busybox stat -c %s /most /more; echo "$all"'],
        AttachStdout: true,
        Tty: true,
      });
      let text = '';
      for await (const chunk of await exec.start({ Tty: true })) text += String(chunk);
      return text;
    };
    const seen = await until(look, (text) => text.includes('exceeded') || text.includes('No space'), 20_000);
    const [most, more] = seen.split(/\s+/).map(Number);
    expect(most).toBe(15 * 1024 ** 2);
    expect(more).toBeLessThan(5 * 1024 ** 2);
  });

  test('have the default size where the request names none, and the answer has none', async () => {
    const { id, spec } = await start('default', {});
    expect(spec.resources.disk_size_mib).toBeNull();
    const [held] = await docker.listContainers({ filters: { label: [`dev.sandkeep.sandbox=${id}`] } });
    const { HostConfig } = await docker.getContainer(held!.Id).inspect();
    expect(HostConfig.StorageOpt).toEqual({ size: '30m' });
  });

  test('require a mount at each volume that the image declares, because such a volume has no limit', async () => {
    const spec = {
      image: { type: 'oci', reference: 'sandkeep-test:volume' },
      resources: { disk_size_mib: 20 },
    };
    const refused = await start('declared', spec);
    expect([refused.status, refused.last_failure_message]).toEqual([
      'failed',
      'resources.disk_size_mib cannot limit the volume that the image declares at /declared: mount something there, or leave disk_size_mib out',
    ]);
    const mounts = [{ type: 'tmpfs', guest: '/declared', size_mib: 1 }];
    expect((await start('mounted', { ...spec, mounts })).status).toBe('running');
    expect((await start('unlimited', { ...spec, resources: {} })).status).toBe('running');
  });
});
