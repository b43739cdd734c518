import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { destroyAll, onDocker } from '../support/docker-service.js';
import { containerOf, describeDocker, execIn, IMAGE, makeImage } from '../support/docker.js';
import { smallRequest } from '../support/sandbox-requests.js';
import { startTestService, type TestService } from '../support/service.js';

/** The engine runs with the capabilities of this machine. */
const ENGINE_STATUS = '/proc/self/status';
const CAP_SYS_RESOURCE = 24n;

const running = { start: true, wait_for: 'running', wait_timeout: 120 };

describeDocker('a sandbox', () => {
  let service: TestService;
  let client: Client;
  let stranger: Client;
  beforeAll(async () => {
    makeImage();
    service = await startTestService(onDocker());
    [client, stranger] = [await service.newOrg(), await service.newOrg()];
  });
  afterAll(async () => {
    await destroyAll(service, client, stranger);
    await service.close();
  });

  const start = async (name: string, vcpus: number) => {
    const { body } = await client.post(
      '/v1/sandboxes',
      smallRequest(name, {
        image: { type: 'oci', reference: IMAGE },
        pull_policy: 'never',
        resources: { vcpus, memory_mib: 64 },
      }),
      running,
    );
    expect(body.status).toBe('running');
    const { HostConfig, State } = await (await containerOf(body.id))!.inspect();
    return { id: body.id as string, host: HostConfig, pid: State.Pid };
  };

  test('has a share of the processor that grows with its vCPUs, and is smaller than that of a service', async () => {
    const [one, two, none] = [await start('one', 1), await start('two', 2), await start('none', 0)];
    expect([one, two, none].map(({ host }) => host.CpuShares)).toEqual([128, 256, 32]);
    expect([one, none].map(({ host }) => host.NanoCpus)).toEqual([1e9, 0.25e9]);
  });

  test('is killed first when the machine has no memory, and a process in it cannot change that', async () => {
    const { id, pid } = await start('victim', 1);
    expect(readFileSync(`/proc/${pid}/oom_score_adj`, 'utf8')).toBe('900\n');
    const attempt = 'echo 0 > /proc/self/oom_score_adj; cat /proc/self/oom_score_adj';
    // The kernel remembers the value as a lower bound only if the engine has this capability.
    const bounding = /^CapBnd:\s*([0-9a-f]+)/m.exec(readFileSync(ENGINE_STATUS, 'utf8'))![1];
    if (((BigInt(`0x${bounding}`) >> CAP_SYS_RESOURCE) & 1n) === 0n) return;
    expect(await execIn(id, 'sh', '-c', attempt)).toMatch(/900\s*$/);
  });

  test('shares no inode with a sandbox of another organization', async () => {
    const request = smallRequest('stranger', {
      image: { type: 'oci', reference: IMAGE },
      pull_policy: 'never',
      resources: { vcpus: 1, memory_mib: 64 },
    });
    const { body } = await stranger.post('/v1/sandboxes', request, running);
    const { State } = await (await containerOf(body.id))!.inspect();
    const own = await start('watcher', 1);
    // The same file of the kernel has one lock, and one list of inotify watches.
    const shared = PATHS.filter((path) => {
      const [here, there] = [`/proc/${own.pid}/root${path}`, `/proc/${State.Pid}/root${path}`];
      const attempt = spawnSync('flock', ['--nonblock', here, 'flock', '--nonblock', there, 'true']);
      const alone = spawnSync('flock', ['--nonblock', there, 'true']);
      expect([path, alone.status]).toEqual([path, 0]);
      return attempt.status !== 0;
    });
    expect(shared).toEqual([]);
    const mounts = readFileSync(`/proc/${own.pid}/mountinfo`, 'utf8').split('\n');
    expect(mounts.find((mount) => mount.includes(' /.sandkeep'))).toMatch(/ \/\.sandkeep ro,/);
  });
});

/**
 * Files and directories of each mount of a sandbox. Lower files of the image are the same file on the disk of the
 * engine.
 */
const PATHS = [
  '/',
  '/bin',
  '/bin/busybox',
  '/etc',
  '/etc/hosts',
  '/etc/hostname',
  '/etc/resolv.conf',
  '/.sandkeep',
  '/.sandkeep/bin',
  '/.sandkeep/bin/init',
  '/.sandkeep/bin/agent',
  '/dev',
  '/dev/null',
  '/dev/zero',
  '/dev/urandom',
  '/dev/pts',
  '/dev/shm',
  '/dev/mqueue',
  '/proc',
  '/proc/meminfo',
  '/proc/sys/kernel/hostname',
  '/proc/loadavg',
  '/sys',
  '/sys/kernel',
  '/sys/fs/cgroup',
];
