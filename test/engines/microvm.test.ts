import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { placesOf } from '../../src/engines/microvm/places.js';
import { isAlive } from '../../src/engines/microvm/processes.js';
import { readRecord } from '../../src/engines/microvm/read-record.js';
import { instantFromMicros, shortInstant } from '../../src/lib/instant.js';
import type { Client } from '../support/client.js';
import { allEvents, openEvents } from '../support/event-stream.js';
import { describeMicrovm } from '../support/microvm/needs.js';
import { destroyAll, IMAGE, makeMicrovmDirectory, onMicrovm, shIn } from '../support/microvm/service.js';
import { until, untilStatus } from '../support/polling.js';
import { fullRequest } from '../support/sandbox-requests.js';
import { startTestService, type TestService } from '../support/service.js';

const running = { start: true, wait_for: 'running', wait_timeout: 120 };
const request = (name: string, more: Record<string, unknown> = {}) => ({
  name,
  image: { type: 'oci', reference: IMAGE },
  pull_policy: 'never',
  resources: { vcpus: 1, memory_mib: 192 },
  network: { enabled: false },
  ...more,
});

describeMicrovm('the microvm runtime', () => {
  let dataDir: string;
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    dataDir = await makeMicrovmDirectory();
    service = await startTestService({
      ...onMicrovm(dataDir),
      settings: { stopGraceMs: 20_000, ephemeralLingerMs: 500 },
    });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
    rmSync(dataDir, { recursive: true, force: true });
  });

  const places = (id: string) => placesOf(join(dataDir, 'microvm'), id);
  const create = async (name: string, more: Record<string, unknown> = {}) => {
    const { body } = await client.post('/v1/sandboxes', request(name, more), running);
    expect(body.status, JSON.stringify(body)).toBe('running');
    return body;
  };
  const inside = async (id: string, script: string) => shIn(service, id, script);

  test('refuses by its field what no virtual machine has', async () => {
    const many = (count: number, type: 'bind' | 'disk_image') =>
      Array.from({ length: count }, (_, n) => ({
        type,
        host: `/${n}`,
        guest: `/mount-${n}`,
        ...(type === 'bind' ? {} : { format: 'raw' }),
      }));
    const refusals: [string, Record<string, unknown>, string][] = [
      ['mounts[6]', { mounts: many(7, 'bind') }, 'at most 6 volumes'],
      [
        'mounts[13]',
        {
          mounts: [
            many(1, 'bind')[0],
            ...many(13, 'disk_image').map((mount) => ({ ...mount, guest: `${mount.guest}-image` })),
          ],
        },
        'at most 12 disk images',
      ],
      [
        'resources.disk_size_mib',
        { resources: { vcpus: 1, memory_mib: 192, disk_size_mib: 9_000_000 } },
        'at most 8388608 MiB',
      ],
      ['rlimits[0].hard', { rlimits: [{ resource: 'nofile', soft: 1, hard: 1_048_577 }] }, 'up to 1048576'],
    ];
    for (const [field, more, words] of refusals) {
      const { status, body } = await client.post('/v1/sandboxes', request('refused', more), running);
      expect([status, body.error?.details?.field], JSON.stringify(body)).toEqual([400, field]);
      expect(body.error.message).toContain(words);
    }
  });

  test('makes the machine of the specification, with limits around its monitor', async () => {
    const secret = 'canary-of-the-environment';
    const body = await create('spec', {
      resources: { vcpus: 2, memory_mib: 256, disk_size_mib: 64 },
      env: [
        { key: 'COLOUR', value: 'blue sky' },
        { key: 'TOKEN', value: secret, secret: true },
      ],
      runtime: {
        cmd: ['sh', '-c', 'echo "$COLOUR $FROM_IMAGE"; id; pwd; sleep 600'],
        user: 'ann',
        workdir: '/tmp/work',
        hostname: 'box.test',
        scripts: { hello: 'echo from a script' },
      },
      rlimits: [
        { resource: 'nofile', soft: 100, hard: 200 },
        { resource: 'as', soft: 536_870_912, hard: 536_870_912 },
        { resource: 'nice', soft: 40, hard: 40 },
        { resource: 'rtprio', soft: 10, hard: 10 },
      ],
      patches: [
        { type: 'text', path: '/etc/motd/today', content: 'patched', mode: 0o600, replace: false },
        { type: 'symlink', link: '/etc/link', target: '/etc/motd', replace: false },
        { type: 'remove', path: '/srv' },
      ],
      mounts: [{ type: 'tmpfs', guest: '/scratch', size_mib: 8, options: { noexec: true, nosuid: true } }],
    });
    const { id } = body;
    const facts = await inside(
      id,
      'nproc; hostname; id -un; hello; ulimit -Hn; echo $TOKEN; ls /sys/class/net',
    );
    expect(facts.split('\n')).toEqual(['2', 'box.test', 'ann', 'from a script', '200', secret, 'lo']);
    expect(await inside(id, "grep -E 'address|nice|realtime p' /proc/self/limits | tr -s ' '")).toBe(
      [
        'Max address space 536870912 536870912 bytes',
        'Max nice priority 40 40',
        'Max realtime priority 10 10',
      ].join(' \n'),
    );
    expect(await inside(id, 'stat -c "%U %a" /etc/link/today; ls /srv 2>&1 || true')).toBe(
      'root 600\nls: /srv: No such file or directory',
    );
    expect(await inside(id, 'grep " /scratch " /proc/mounts')).toMatch(
      /^tmpfs \/scratch tmpfs rw,nosuid,noexec,.*size=8192k/,
    );
    const [, total] = /MemTotal: +(\d+) kB/.exec(await inside(id, 'cat /proc/meminfo'))!;
    expect(Number(total)).toBeGreaterThan(180 * 1024);
    expect(Number(total)).toBeLessThanOrEqual(256 * 1024);
    const [, size] = /^\S+ +(\d+) /m.exec(await inside(id, 'df -m / | tail -1'))!;
    expect(Number(size)).toBeGreaterThan(40);
    expect(Number(size)).toBeLessThanOrEqual(64);

    const record = (await readRecord(places(id)))!;
    expect(body.started_at).toBe(shortInstant(instantFromMicros(record.startedAt!)));
    const status = readFileSync(`/proc/${record.monitor!.pid}/status`, 'utf8');
    expect(Number(/^Uid:\t(\d+)\t/m.exec(status)![1])).toBeGreaterThanOrEqual(0x7000_0000);
    expect(status).toMatch(/^CapBnd:\t0+$/m);
    expect(status).toMatch(/^Seccomp:\t2$/m);
    // The file of a pause: the memory and the state of devices. A disk of 64 MiB with its tables needs less.
    const limits = readFileSync(`/proc/${record.monitor!.pid}/limits`, 'utf8');
    expect(limits).toMatch(
      new RegExp(`^Max file size +${(256 + 64) * 1024 * 1024} +${(256 + 64) * 1024 * 1024} `, 'm'),
    );
    expect(readFileSync(`/proc/${record.monitor!.pid}/cgroup`, 'utf8')).toContain(id);
    // The values of secrets are in the memory of the machine alone.
    for (const name of readdirSync(places(id).directory, { recursive: true, encoding: 'utf8' })) {
      const path = join(places(id).directory, name);
      if (statSync(path).isFile() && !name.endsWith('.erofs'))
        expect(readFileSync(path).includes(secret), name).toBe(false);
    }
    expect(readFileSync(`/proc/${record.monitor!.pid}/cmdline`, 'utf8')).not.toContain(secret);
    expect(inSharedMemory(secret)).toEqual([]);
    await client.delete(`/v1/sandboxes/${id}`);
    await until(
      async () => isAlive(record),
      (alive) => !alive,
    );
    await until(
      async () => existsSync(places(id).directory),
      (exists) => !exists,
    );
  });

  test('records runs with the times of the supervisor, keeps the disk between runs, and bills their sum', async () => {
    const { id } = await create('runs');
    const times: [string, string][] = [];
    for (let round = 0; round < 2; round += 1) {
      await inside(id, `touch /srv/round-${round}`);
      await client.post(`/v1/sandboxes/${id}/stop`, {});
      const { body: stopped } = await untilStatus(client, id, 'stopped');
      const record = (await readRecord(places(id)))!;
      expect(record.end).toMatchObject({ stop: 'asked', shutdown: 'guest' });
      const own = [record.startedAt!, record.end!.endedAt].map((micros) =>
        shortInstant(instantFromMicros(micros)),
      );
      expect([stopped.started_at, stopped.stopped_at]).toEqual(own);
      expect(stopped.last_failure_message).toBeNull();
      times.push([stopped.started_at, stopped.stopped_at]);
      const again = await client.post(
        `/v1/sandboxes/${id}/start`,
        {},
        { wait_for: 'running', wait_timeout: 120 },
      );
      expect(again.body.status).toBe('running');
      expect(again.body.started_at > stopped.stopped_at).toBe(true);
    }
    expect(await inside(id, 'ls /srv')).toBe('round-0\nround-1');
    await client.post(`/v1/sandboxes/${id}/stop`, {});
    await untilStatus(client, id, 'stopped');
    const { rows } = await service.ctx.pool.query(
      'select started_at, stopped_at from runs where sandbox_id = $1 order by started_at',
      [id],
    );
    const stored = rows.map((row) => [shortInstant(row.started_at), shortInstant(row.stopped_at)]);
    expect(stored.slice(0, 2)).toEqual(times);
    const millis = rows.reduce(
      (sum, row) => sum + (Date.parse(row.stopped_at) - Date.parse(row.started_at)),
      0,
    );
    const usage = await client.get('/v1/billing/usage/sandbox');
    const used = usage.body.rows
      .filter(({ sandbox_id }: any) => sandbox_id === id)
      .reduce((sum: number, row: any) => sum + row.vcpu_seconds, 0);
    expect(Math.abs(used - millis / 1000)).toBeLessThan(0.01);
  });

  test('ends a run with its command, and has the output in the log', async () => {
    const ends = { lifecycle: { ends_with_command: true } };
    const run = async (name: string, script: string) =>
      (
        await client.post(
          '/v1/sandboxes',
          request(name, { ...ends, runtime: { cmd: ['sh', '-c', script] } }),
          { start: true },
        )
      ).body.id as string;
    const good = await run('exits-0', 'echo out; echo err >&2; exit 0');
    const bad = await run('exits-7', 'sleep 1; exit 7');
    expect((await untilStatus(client, good, 'stopped')).body.last_failure_message).toBeNull();
    expect((await untilStatus(client, bad, 'failed')).body.last_failure_message).toBe(
      'the main process ended with code 7',
    );
    const lines = (await allEvents((await openEvents(client, `/v1/sandboxes/${good}/logs`)).events)).filter(
      ({ event }) => event === 'log',
    );
    expect(lines.map(({ data }) => `${data.source} ${data.text}`).toSorted()).toEqual([
      'stderr err\n',
      'stdout out\n',
    ]);
  });

  test('keeps a sandbox up after its command ended, and tells of the end', async () => {
    const { id } = await create('ends', { runtime: { cmd: ['sh', '-c', 'echo once; exit 3'] } });
    const ended = await until(
      () => client.get(`/v1/sandboxes/${id}`),
      ({ body }) => body.command?.status === 'exited',
    );
    expect(ended.body).toMatchObject({ status: 'running', command: { exit_code: 3 } });
    expect(await inside(id, 'cat /proc/1/comm')).toBe('init');
    await client.delete(`/v1/sandboxes/${id}`);
  });

  test('has sessions in the smallest machine, and beside a file of half its memory', async () => {
    const { id } = await create('smallest', { resources: { vcpus: 1, memory_mib: 128 } });
    const script = 'dd if=/dev/zero of=/large bs=1M count=64 2>/dev/null; wc -c < /large';
    expect(await inside(id, script)).toBe(String(64 * 1024 ** 2));
    expect(await inside(id, 'cat /proc/1/comm')).toBe('init');
    await client.delete(`/v1/sandboxes/${id}`);
  });

  test('tells why a sandbox cannot start, and never bills it', async () => {
    const start = async (name: string, part: Record<string, unknown>) =>
      (await client.post('/v1/sandboxes', request(name, part), running)).body;
    const missing = await start('missing', { image: { type: 'oci', reference: 'no-such:image' } });
    expect([missing.status, missing.last_failure_message]).toEqual([
      'failed',
      expect.stringContaining('the image no-such:image is not on this machine'),
    ]);
    const patches = [{ type: 'text', path: '/bin/sh', content: '', replace: false }];
    const unpatched = await start('unpatched', { patches });
    expect([unpatched.status, unpatched.last_failure_message]).toEqual([
      'failed',
      expect.stringContaining('patches[0] cannot be applied: /bin/sh already exists, and replace is false'),
    ]);
    const { rows } = await service.ctx.pool.query(
      'select started_at from runs where sandbox_id = any ($1) and started_at is not null',
      [[missing.id, unpatched.id]],
    );
    expect(rows).toEqual([]);
  });

  test('notices a monitor and a supervisor that were killed, and closes their runs', async () => {
    const [one, two] = await Promise.all([create('monitor'), create('supervisor')]);
    const first = (await readRecord(places(one.id)))!;
    process.kill(first.monitor!.pid, 'SIGKILL');
    const failed = await untilStatus(client, one.id, 'failed');
    const { end } = (await readRecord(places(one.id)))!;
    expect(failed.body.stopped_at).toBe(shortInstant(instantFromMicros(end!.endedAt)));

    const second = (await readRecord(places(two.id)))!;
    process.kill(second.supervisor.pid, 'SIGKILL');
    const lost = await untilStatus(client, two.id, 'failed');
    expect(isAlive(second)).toBe(false);
    expect(lost.body.stopped_at >= lost.body.started_at).toBe(true);
    const again = await client.post(
      `/v1/sandboxes/${two.id}/start`,
      {},
      { wait_for: 'running', wait_timeout: 120 },
    );
    expect(again.body.status).toBe('running');
    for (const { id } of [one, two]) await client.delete(`/v1/sandboxes/${id}`);
  });

  test('ends an idle sandbox, and destroys what belongs to nobody', async () => {
    // The create waits until it runs, and its files are read before it ends.
    const lifecycle = { idle_timeout_secs: 15 };
    const idle = await create('idle', { lifecycle, runtime: { cmd: ['sleep', '600'] } });
    const orphan = '00000000-0000-7000-8000-000000000001';
    mkdirSync(places(orphan).directory);
    const identity = JSON.parse(readFileSync(places(idle.id).identity, 'utf8'));
    writeFileSync(places(orphan).identity, JSON.stringify({ ...identity, sandboxId: orphan }));
    const { body: ended } = await untilStatus(client, idle.id, 'stopped');
    expect(Date.parse(ended.stopped_at) - Date.parse(ended.started_at)).toBeGreaterThanOrEqual(15_000);
    await until(
      async () => existsSync(places(orphan).directory),
      (exists) => !exists,
    );
  });

  test('shares the base of an image, and takes little of the disk for a sandbox', async () => {
    const { id } = await create('small');
    expect(statSync(places(id).base).nlink).toBeGreaterThanOrEqual(2);
    const [kib] = execFileSync('du', ['-k', places(id).disk], { encoding: 'utf8' }).split('\t');
    expect(Number(kib)).toBeLessThan(4 * 1024);
    await client.delete(`/v1/sandboxes/${id}`);
  });

  test('refuses settings that it cannot enforce by the name of their field', async () => {
    const full = fullRequest('refused', 'none') as any;
    const refused: [field: string, part: Record<string, unknown>][] = [
      ['network.ports[0].host_bind', { network: { ports: [{ guest_port: 80, host_bind: '::1' }] } }],
      ['network.tls', { network: { tls: { enabled: true } } }],
      ['network.interface', { network: { interface: { ipv4_address: '10.200.0.9' } } }],
      ['resources.vcpus', { resources: { vcpus: 10_000 } }],
      ['resources.memory_mib', { resources: { memory_mib: 5 } }],
      ['mounts[0].quota_mib', { mounts: [full.mounts[0]] }],
    ];
    for (const [field, part] of refused) {
      const { status, body } = await client.post('/v1/sandboxes', request('refused', part));
      expect([status, body.error?.code, body.error?.details], JSON.stringify(part)).toEqual([
        400,
        'invalid_sandbox_config',
        { field },
      ]);
    }
  });
});

/** The files of starts in /dev/shm with this text. Those of other sandboxes of the machine come and go. */
function inSharedMemory(text: string): string[] {
  const names = readdirSync('/dev/shm').filter((name) => /^sandkeep-[0-9a-f-]{36}$/.test(name));
  return names.filter((name) => {
    try {
      return readFileSync(join('/dev/shm', name)).includes(text);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
      throw error;
    }
  });
}
