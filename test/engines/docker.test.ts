import { existsSync, statSync } from 'node:fs';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readInstance } from '../../src/db/instance-queries.js';
import { parseInstant, shortInstant } from '../../src/lib/instant.js';
import type { Client } from '../support/client.js';
import { destroyAll, onDocker } from '../support/docker-service.js';
import { containerOf, describeDocker, docker, execIn, IMAGE, makeImage } from '../support/docker.js';
import { allEvents, openEvents } from '../support/event-stream.js';
import { startTestService, type TestService } from '../support/service.js';
import { fullRequest } from '../support/sandbox-requests.js';
import { until, untilStatus } from '../support/polling.js';

const running = { start: true, wait_for: 'running', wait_timeout: 120 };
const request = (name: string, more: Record<string, unknown> = {}) => ({
  name,
  image: { type: 'oci', reference: IMAGE },
  pull_policy: 'never',
  ...more,
});
const engineTime = (text: string) => shortInstant(parseInstant(text)!);

describeDocker('the docker runtime', () => {
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    makeImage();
    service = await startTestService({
      ...onDocker(),
      settings: { stopGraceMs: 60_000, ephemeralLingerMs: 500 },
    });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
  });

  test('creates the container of the specification', async () => {
    const { body } = await client.post(
      '/v1/sandboxes',
      request('spec', {
        resources: { vcpus: 1, memory_mib: 64 },
        env: [
          { key: 'COLOUR', value: 'blue sky' },
          { key: 'COLOUR', value: 'red' },
        ],
        labels: { team: 'ml', 'traefik.enable': 'true', 'dev.sandkeep.instance': 'another' },
        runtime: {
          cmd: ['sh', '-c', 'env > /tmp/env; pwd > /tmp/pwd; sleep 600'],
          user: '0:0',
          workdir: '/srv',
        },
        rlimits: [{ resource: 'nofile', soft: 100, hard: 200 }],
        mounts: [{ type: 'tmpfs', guest: '/scratch', size_mib: 8, options: { noexec: true, nosuid: true } }],
      }),
      running,
    );
    expect(body.status, JSON.stringify(body)).toBe('running');
    const { Config, HostConfig, State } = await (await containerOf(body.id))!.inspect();
    expect(HostConfig).toMatchObject({
      NanoCpus: 1e9,
      Memory: 64 * 1024 * 1024,
      MemorySwap: 64 * 1024 * 1024,
      PidsLimit: 256,
      CapDrop: ['ALL'],
      SecurityOpt: ['no-new-privileges'],
      NetworkMode: 'none',
      Privileged: false,
    });
    expect(Config.Env.filter((entry) => entry.startsWith('COLOUR='))).toEqual(['COLOUR=red']);
    // The labels of a tenant do not become labels of the container.
    expect(Config.Labels).toEqual({
      'dev.sandkeep.label.team': 'ml',
      'dev.sandkeep.label.traefik.enable': 'true',
      'dev.sandkeep.label.dev.sandkeep.instance': 'another',
      'dev.sandkeep.instance': (await readInstance(service.ctx.pool)).id,
      'dev.sandkeep.org': client.org.id,
      'dev.sandkeep.image': expect.stringMatching(/^sha256:/),
      'dev.sandkeep.run': expect.any(String),
      'dev.sandkeep.sandbox': body.id,
    });
    expect(Config.User).toBe('0:0');
    expect(body.started_at).toBe(engineTime(State.StartedAt));
    for (const [file, text] of [
      ['/tmp/env', 'COLOUR=red'],
      ['/tmp/pwd', '/srv'],
    ] as const)
      await until(
        () => execIn(body.id, 'cat', file),
        (found) => found.includes(text),
      );
    // Read from the sandbox's own process: exec sometimes gets the hard limit as its soft one.
    expect(await execIn(body.id, 'cat', '/proc/1/limits')).toMatch(/^Max open files +100 +200 /m);
    const mounts = await execIn(body.id, 'cat', '/proc/mounts');
    expect(mounts).toMatch(/tmpfs \/scratch tmpfs rw,nosuid,noexec,[^\n]*size=8192k/);
    expect(mounts.split('\n').find((line) => line.includes('/scratch'))).not.toContain('nodev');
    expect(await execIn(body.id, 'ls', '/sys/class/net')).toMatch(/^lo\s*$/);
  });

  test('limits logs and other files of the engine on the disk of the machine', async () => {
    // The engine writes six bytes for each.
    const cmd = ['sh', '-c', 'dd if=/dev/zero bs=1M count=5; touch /tmp/printed; sleep 600'];
    const { body } = await client.post('/v1/sandboxes', request('full', { runtime: { cmd } }), running);
    await until(
      () => execIn(body.id, 'ls', '/tmp'),
      (found) => found.includes('printed'),
      30_000,
    );
    for (const file of ['/etc/hosts', '/etc/hostname', '/etc/resolv.conf']) {
      expect(await execIn(body.id, 'sh', '-c', `(echo x >> ${file}) 2>&1`), file).toContain(
        'Read-only file system',
      );
      expect(await execIn(body.id, 'sh', '-c', `mount -o remount,rw ${file} 2>&1`), file).toContain('denied');
    }
    expect(await execIn(body.id, 'cat', '/etc/hosts')).toContain('127.0.0.1\tlocalhost');
    expect(await execIn(body.id, 'cat', '/etc/hostname')).toContain(body.id);
    const { LogPath } = await (await containerOf(body.id))!.inspect();
    // The engine writes the log later than the command.
    const logs = [LogPath, `${LogPath}.1`];
    await until(
      () => Promise.resolve(logs.every((path) => existsSync(path))),
      (exist) => exist,
    );
    // The engine renames the first one when it is full.
    const kept = logs.map((path) => statSync(path, { throwIfNoEntry: false })?.size ?? 0);
    expect(kept[0]! + kept[1]!).toBeLessThan(21_000_000);
    expect(existsSync(`${LogPath}.2`)).toBe(false);
  });

  test('keeps a sandbox without a command running, and a stop ends it without force', async () => {
    const { body } = await client.post('/v1/sandboxes', request('idle'), running);
    expect(body.status).toBe('running');
    await client.post(`/v1/sandboxes/${body.id}/stop`, {});
    const stopped = await untilStatus(client, body.id, 'stopped');
    // The process ended at the signal, without a kill by the engine.
    expect((await (await containerOf(body.id))!.inspect()).State.ExitCode).not.toBe(137);
    expect(stopped.body.last_failure_message).toBeNull();
  });

  test('records runs with the times of the engine, keeps the disk between runs, and bills their sum', async () => {
    const { body } = await client.post('/v1/sandboxes', request('runs'), running);
    const times: [string, string][] = [];
    for (let round = 0; round < 3; round += 1) {
      await execIn(body.id, 'touch', `/tmp/round-${round}`);
      await client.post(`/v1/sandboxes/${body.id}/stop`, {});
      const stopped = await untilStatus(client, body.id, 'stopped');
      const { State } = await (await containerOf(body.id))!.inspect();
      expect(stopped.body.started_at).toBe(engineTime(State.StartedAt));
      expect(stopped.body.stopped_at).toBe(engineTime(State.FinishedAt));
      times.push([stopped.body.started_at, stopped.body.stopped_at]);
      const again = await client.post(`/v1/sandboxes/${body.id}/start`, {}, { wait_for: 'running' });
      expect(again.body.status).toBe('running');
      expect(again.body.started_at > stopped.body.stopped_at).toBe(true);
    }
    expect((await execIn(body.id, 'ls', '/tmp')).match(/round-\d/g)).toEqual([
      'round-0',
      'round-1',
      'round-2',
    ]);
    await client.delete(`/v1/sandboxes/${body.id}`);
    const { rows } = await until(
      () =>
        service.ctx.pool.query(
          'select started_at, stopped_at, end_reason from runs where sandbox_id = $1 order by started_at',
          [body.id],
        ),
      (result) => result.rows.every(({ end_reason }) => end_reason !== null),
      20_000,
    );
    expect(
      rows.slice(0, 3).map((row) => [shortInstant(row.started_at), shortInstant(row.stopped_at)]),
    ).toEqual(times);
    const micros = rows.reduce(
      (sum, row) => sum + (Date.parse(row.stopped_at) - Date.parse(row.started_at)),
      0,
    );
    const usage = await client.get('/v1/billing/usage/sandbox');
    const used = usage.body.rows
      .filter(({ sandbox_id }: any) => sandbox_id === body.id)
      .reduce((sum: number, row: any) => sum + row.vcpu_seconds, 0);
    expect(Math.abs(used - micros / 1000)).toBeLessThan(0.01);
    await until(
      () => containerOf(body.id),
      (container) => container === undefined,
      20_000,
    );
  });

  test('maps exit code 0 to stopped, other codes to failed, and reports out of memory', async () => {
    const run = async (name: string, script: string, memory_mib = 32) =>
      (
        await client.post(
          '/v1/sandboxes',
          request(name, {
            runtime: { cmd: ['sh', '-c', script] },
            lifecycle: { ends_with_command: true },
            resources: { memory_mib },
          }),
          { start: true },
        )
      ).body.id;
    const good = await run('exits-0', 'sleep 1');
    const bad = await run('exits-7', 'sleep 1; exit 7');
    const greedy = await run('greedy', 'sleep 1; dd if=/dev/zero of=/dev/null bs=200M count=1; exit 9');
    expect((await untilStatus(client, good, 'stopped', 20_000)).body.last_failure_message).toBeNull();
    expect((await untilStatus(client, bad, 'failed', 20_000)).body.last_failure_message).toBe(
      'the main process ended with code 7',
    );
    expect((await untilStatus(client, greedy, 'failed', 20_000)).body.last_failure_message).toBe(
      'the sandbox ran out of memory',
    );
  });

  test('keeps a sandbox up after its command ended, with the output in the log', async () => {
    const image = { type: 'oci', reference: 'sandkeep-test:ends' };
    const built = await docker.createContainer({ Image: IMAGE, Cmd: ['true'] });
    await built.commit({
      repo: 'sandkeep-test',
      tag: 'ends',
      changes: 'CMD ["/bin/busybox","echo","hello"]',
    });
    await built.remove();
    const requested = { runtime: { cmd: ['sh', '-c', 'echo once; exit 3'] } };
    const LAST = ['once\n', 'sandkeep: the command ended with code 3\n'];
    for (const [name, part, printed] of [
      ['image-command', { image }, []],
      ['own-command', requested, LAST],
      ['own-command-of-that-image', { image, ...requested }, LAST],
      [
        'no-such-command',
        { runtime: { cmd: ['/no/such'] } },
        [expect.stringContaining('cannot run "/no/such"'), expect.stringMatching(/ended with code 127$/m)],
      ],
    ] as const) {
      const { body } = await client.post('/v1/sandboxes', request(name, part), running);
      expect(body.status, name).toBe('running');
      const container = (await containerOf(body.id))!;
      await until(
        async () => (await container.top()).Processes.length,
        (count) => count === 1,
      );
      // Process 1 is alone also before the start of the command.
      if (printed.length > 0)
        await until(
          async () => String(await container.logs({ stdout: true, stderr: true })),
          (log) => log.includes('sandkeep: '),
        );
      expect((await client.get(`/v1/sandboxes/${body.id}`)).body.status, name).toBe('running');
      expect(await execIn(body.id, 'cat', '/proc/1/comm'), name).toMatch(/^init\s*$/);
      await client.post(`/v1/sandboxes/${body.id}/stop`, {});
      const stopped = await untilStatus(client, body.id, 'stopped');
      expect(stopped.body.last_failure_message, name).toBeNull();
      const lines = (
        await allEvents((await openEvents(client, `/v1/sandboxes/${body.id}/logs`)).events)
      ).filter(({ event }) => event === 'log');
      // The engine reads standard output and standard error by two pipes: either may be first.
      const text = lines.map(({ data }) => data.text).join('');
      expect((text.match(/.*\n/g) ?? []).toSorted(), name).toEqual(printed);
    }
  });

  test('notices the end of a command that ends at once, in each of many restarts', async () => {
    const ids = await Promise.all(
      Array.from({ length: 6 }, async (_, index) => {
        const spec = { runtime: { cmd: ['true'] }, lifecycle: { ends_with_command: true } };
        return (await client.post('/v1/sandboxes', request(`quick-${index}`, spec), { start: true })).body
          .id as string;
      }),
    );
    for (let round = 0; round < 4; round += 1) {
      for (const id of ids) await untilStatus(client, id, 'stopped', 20_000);
      await Promise.all(ids.map((id) => client.post(`/v1/sandboxes/${id}/start`, {})));
    }
    for (const id of ids) await untilStatus(client, id, 'stopped', 20_000);
    const { rows } = await service.ctx.pool.query(
      'select started_at, stopped_at from runs where sandbox_id = any ($1)',
      [ids],
    );
    expect(rows).toHaveLength(30);
    expect(rows.every(({ started_at, stopped_at }) => started_at !== null && stopped_at >= started_at)).toBe(
      true,
    );
    for (const id of ids) {
      const { body } = await client.get('/v1/events', { resource_id: id, event_type: 'sandbox_started' });
      expect(body.data).toHaveLength(5);
    }
  });

  test('reports the reason of a failed start', async () => {
    const missing = await client.post(
      '/v1/sandboxes',
      request('missing', { image: { type: 'oci', reference: 'no-such:image' } }),
      running,
    );
    expect([missing.body.status, missing.body.last_failure_message]).toEqual([
      'failed',
      'the image no-such:image is not on this machine, and pull_policy is never: pull it first, or use if_missing',
    ]);
    const program = await client.post(
      '/v1/sandboxes',
      request('program', { runtime: { cmd: ['/no/such'] }, lifecycle: { ends_with_command: true } }),
      running,
    );
    const failed = await untilStatus(client, program.body.id, 'failed');
    expect(failed.body.last_failure_message).toBe(
      'the main process ended with code 127 (there is no such command in the image)',
    );
  });

  test('reports the reason of a failed pull', async () => {
    const answer = await client.post(
      '/v1/sandboxes',
      { name: 'unpullable', image: { type: 'oci', reference: 'localhost:1/nobody/nothing:1' } },
      running,
    );
    expect(answer.body.status).toBe('failed');
    expect(answer.body.last_failure_message).toMatch(
      /^the image localhost:1\/nobody\/nothing:1 cannot be pulled: /,
    );
  });

  test('notices a container killed or removed outside the service, and closes its run', async () => {
    const killed = await client.post('/v1/sandboxes', request('killed'), running);
    await (await containerOf(killed.body.id))!.kill();
    const failed = await untilStatus(client, killed.body.id, 'failed');
    const { State } = await (await containerOf(killed.body.id))!.inspect();
    expect(failed.body.stopped_at).toBe(engineTime(State.FinishedAt));

    const removed = await client.post('/v1/sandboxes', request('removed'), running);
    await (await containerOf(removed.body.id))!.remove({ force: true });
    const lost = await untilStatus(client, removed.body.id, 'failed');
    // A forced removal kills first, and the runtime may see that before the container is gone.
    expect(lost.body.last_failure_message).toMatch(/no longer holds the sandbox|it was killed/);
    expect(lost.body.stopped_at >= lost.body.started_at).toBe(true);
    const again = await client.post(`/v1/sandboxes/${removed.body.id}/start`, {}, { wait_for: 'running' });
    expect(again.body.status).toBe('running');
  });

  test('destroys an unknown container of this installation, and no other', async () => {
    const { body } = await client.post('/v1/sandboxes', request('template'), running);
    const { Config } = await (await containerOf(body.id))!.inspect();
    const orphanId = '00000000-0000-7000-8000-000000000001';
    const make = async (sandboxId: string, instance: string) =>
      docker.createContainer({
        name: `sandkeep-${sandboxId}-${sandboxId}-0`,
        Image: IMAGE,
        Cmd: ['sleep', '600'],
        Labels: { ...Config.Labels, 'dev.sandkeep.sandbox': sandboxId, 'dev.sandkeep.instance': instance },
      });
    const orphan = await make(orphanId, Config.Labels['dev.sandkeep.instance']!);
    const foreign = await make('00000000-0000-7000-8000-000000000002', 'another-installation');
    try {
      await until(
        () => containerOf(orphanId),
        (container) => container === undefined,
        20_000,
      );
      expect((await foreign.inspect()).Name).toContain('sandkeep-');
    } finally {
      await orphan.remove({ force: true }).catch(() => undefined);
      await foreign.remove({ force: true });
    }
  });

  test('refuses settings that it cannot enforce by the name of their field', async () => {
    const full = fullRequest('refused', 'none') as any;
    const bind = { type: 'bind', host: 'x', guest: '/x' };
    const refused: [field: string, part: Record<string, unknown>][] = [
      ['resources.disk_size_mib', { resources: { disk_size_mib: 100 } }],
      ['resources.vcpus', { resources: { vcpus: 10_000 } }],
      ['resources.memory_mib', { resources: { memory_mib: 5 } }],
      ['patches[0]', { patches: [{ type: 'remove', path: '/x' }] }],
      ['patches[1]', { patches: full.patches.slice(0, 1).concat(full.patches[5]) }],
      ['init', { init: { cmd: 'auto' } }],
      ['init.cmd', { init: { cmd: 'sbin/init' } }],
      ['rlimits[0]', { rlimits: [{ resource: 'as', soft: 1, hard: 1 }] }],
      ['rlimits[0]', { rlimits: [{ resource: 'rtprio', soft: 0, hard: 1 }] }],
      ['rlimits[0]', { rlimits: [{ resource: 'nice', soft: 0, hard: 21 }] }],
      ...['/proc', '/proc/sys', '/sys/kernel', '/dev', '/dev/shm'].map(
        (guest): [string, Record<string, unknown>] => [
          'mounts[0].guest',
          { mounts: [{ type: 'tmpfs', guest }] },
        ],
      ),
      ['mounts[0].stat_virtualization', { mounts: [full.mounts[0]] }],
      ['mounts[0].host_permissions', { mounts: [{ ...bind, host_permissions: 'mirror' }] }],
      ['mounts[0].quota_mib', { mounts: [{ ...bind, quota_mib: 1 }] }],
      ['mounts[0].stat_virtualization', { mounts: [full.mounts[1]] }],
      ['mounts[0]', { mounts: [full.mounts[3]] }],
      ['network.policy', { network: { policy: full.network.policy } }],
      ['network.max_connections', { network: { max_connections: 1 } }],
      ['network.secrets', { network: { secrets: full.network.secrets } }],
    ];
    for (const [field, part] of refused) {
      const { status, body } = await client.post('/v1/sandboxes', request('refused', part));
      expect([status, body.error?.code, body.error?.details], JSON.stringify(part)).toEqual([
        400,
        'invalid_sandbox_config',
        { field },
      ]);
    }
    expect((await client.get('/v1/sandboxes/by-name/refused')).status).toBe(404);
  });
});
