import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { CONTROL_GROUP, WEIGHT } from '../../src/engines/docker/control-group.js';
import { examineDatabaseDisk } from '../../src/engines/docker/examine-machine.js';
import { disksOf } from '../../src/engines/docker/disk-writes.js';
import type { EngineInfo } from '../../src/engines/docker/engine-info.js';
import { DockerRuntime } from '../../src/engines/docker/runtime.js';
import { VolumeStore } from '../../src/volumes/storage/store.js';
import type { Client } from '../support/client.js';
import { destroyAll, onDocker } from '../support/docker-service.js';
import { containerOf, describeDocker, docker, execIn, IMAGE, makeImage, SOCKET } from '../support/docker.js';
import { untilStatus } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';

const body = { name: 'crowd', image: { type: 'oci', reference: IMAGE }, pull_policy: 'never' };
const running = { start: true, wait_for: 'running', wait_timeout: 120 };

describeDocker('a sandbox and the other processes of the machine', () => {
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    makeImage();
    service = await startTestService({ ...onDocker({ processes: 40 }), settings: { stopGraceMs: 1_000 } });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
  });

  const limitOf = async (id: string) => (await (await containerOf(id))!.inspect()).HostConfig.PidsLimit;

  test('have at most as many processes as the option says, and a changed option from the next start on', async () => {
    const { body: made } = await client.post('/v1/sandboxes', body, running);
    const script = 'i=0; while [ $i -lt 60 ]; do sleep 60 & i=$((i+1)); done';
    expect(await execIn(made.id, 'sh', '-c', `(${script}) 2>&1`)).toContain("can't fork");
    expect(await limitOf(made.id)).toBe(40);

    await client.post(`/v1/sandboxes/${made.id}/stop`, {});
    await untilStatus(client, made.id, 'stopped');
    // The service before has another limit for the same container.
    await (await containerOf(made.id))!.update({ PidsLimit: 77 });
    await client.post(`/v1/sandboxes/${made.id}/start`, {}, { wait_for: 'running', wait_timeout: 120 });
    expect(await limitOf(made.id)).toBe(40);
  });

  test('share one weight of the CPU where the engine manages the control groups itself', async (context) => {
    const { CgroupDriver, CgroupVersion } = (await docker.info()) as EngineInfo;
    if (CgroupDriver !== 'cgroupfs')
      context.skip('SKIPPED: systemd manages the control groups of this engine');
    const { body: made } = await client.post('/v1/sandboxes', { ...body, name: 'weighed' }, running);
    expect((await (await containerOf(made.id))!.inspect()).HostConfig.CgroupParent).toBe(CONTROL_GROUP);
    const [file, weight] =
      CgroupVersion === '2'
        ? [`/sys/fs/cgroup${CONTROL_GROUP}/cpu.weight`, WEIGHT.weight]
        : [`/sys/fs/cgroup/cpu${CONTROL_GROUP}/cpu.shares`, WEIGHT.shares];
    expect(Number(readFileSync(file, 'utf8'))).toBe(weight);
    const { State } = await (await containerOf(made.id))!.inspect();
    expect(readFileSync(`/proc/${State.Pid}/cgroup`, 'utf8')).toContain(`${CONTROL_GROUP}/`);
  });

  test('write to a disk as fast as the option says, and no faster', async (context) => {
    const [disk] = disksOf([((await docker.info()) as EngineInfo).DockerRootDir]);
    if (disk === undefined) context.skip('SKIPPED: the engine has its files on no disk of this machine');
    const other = await startTestService(onDocker({ writesMibPerSecond: 2 }));
    try {
      const org = await other.newOrg();
      const { body: made } = await org.post('/v1/sandboxes', body, running);
      const { HostConfig } = await (await containerOf(made.id))!.inspect();
      expect(HostConfig.BlkioDeviceWriteBps).toContainEqual({ Path: disk, Rate: 2 * 1024 ** 2 });
      const begun = performance.now();
      await execIn(made.id, 'dd', 'if=/dev/zero', 'of=/written', 'bs=1M', 'count=12', 'conv=fsync');
      // The kernel lets a part through at once.
      expect(performance.now() - begun).toBeGreaterThan(4_000);
      await destroyAll(other, org);
    } finally {
      await other.close();
    }
  });

  test('that write to the disk of the database are a finding of doctor', async (context) => {
    const { DockerRootDir: path } = (await docker.info()) as EngineInfo;
    const [disk] = disksOf([path]);
    if (disk === undefined)
      return context.skip('SKIPPED: the engine has its files on no disk of this machine');
    // /proc is on no disk.
    const [none, check] = ['/proc', 'disk sharing'];
    const found = expect.stringContaining(disk);
    const shared = { check, state: 'missing', found, remedy: expect.stringContaining('another disk') };
    expect(examineDatabaseDisk({ dataDir: path, volumesDir: none }, path)).toEqual([shared]);
    expect(examineDatabaseDisk({ dataDir: path, volumesDir: path }, none)).toEqual([shared]);
    const apart = examineDatabaseDisk({ dataDir: path, volumesDir: none }, none);
    expect(apart).toEqual([{ check, state: 'ok', found }]);
    expect(examineDatabaseDisk({ dataDir: none, volumesDir: path }, path)).toEqual([]);
  });

  test('are 256 processes at most without the option', async () => {
    const other = await startTestService({
      runtime: (instanceId) =>
        DockerRuntime.connect(instanceId, {
          socketPath: SOCKET,
          network: 'none',
          volumes: new VolumeStore('/nonexistent'),
        }),
    });
    try {
      const org = await other.newOrg();
      const { body: made } = await org.post('/v1/sandboxes', body, running);
      expect(await limitOf(made.id)).toBe(256);
      await destroyAll(other, org);
    } finally {
      await other.close();
    }
  });
});
