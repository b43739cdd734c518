import { execFileSync, spawnSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { operator } from '../../src/audit/events/actor.js';
import { readInstance } from '../../src/db/instance-queries.js';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { setQuotas } from '../../src/quotas/set.js';
import { stagingDirectoryOf } from '../../src/engines/docker/detect-capabilities.js';
import type { Capability } from '../../src/spec/capabilities.js';
import type { Answer } from '../support/answer.js';
import { PROGRAM, start as startProgram } from '../support/cli.js';
import type { Client } from '../support/client.js';
import { destroyAll, onDocker } from '../support/docker-service.js';
import { containerOf, describeDocker, execIn, IMAGE, makeImage, SOCKET } from '../support/docker.js';
import { startTestService, type TestService } from '../support/service.js';
import { until, untilStatus } from '../support/polling.js';

const running = { start: true, wait_for: 'running', wait_timeout: 120 };
const request = (name: string, mounts: unknown[], more: Record<string, unknown> = {}) => ({
  name,
  image: { type: 'oci', reference: IMAGE },
  pull_policy: 'never',
  mounts,
  ...more,
});

describeDocker('volumes in containers', () => {
  let service: TestService;
  let client: Client;
  let other: Client;
  let room: string;
  beforeAll(async () => {
    makeImage();
    service = await startTestService({
      ...onDocker({ capacity: { vcpus: 100, memoryMib: 100_000 } }),
      settings: { stopGraceMs: 200 },
    });
    client = await service.newOrg();
    other = await service.newOrg();
    room = stagingDirectoryOf((await readInstance(service.ctx.pool)).id);
  });
  afterAll(async () => {
    await destroyAll(service, client, other);
    await service.close();
    expect(existsSync(room)).toBe(false);
  });

  async function create(org: Client, body: object, query: object = running): Promise<any> {
    const answer = await org.post('/v1/sandboxes', body, query as any);
    expect(answer.status, answer.text).toBe(200);
    return answer.body;
  }
  async function start(body: object, org = client): Promise<string> {
    const sandbox = await create(org, body);
    expect(sandbox.status, JSON.stringify(sandbox)).toBe('running');
    return sandbox.id;
  }
  async function refusal(body: object): Promise<string> {
    const sandbox = await create(client, body);
    expect(sandbox.status).toBe('failed');
    return sandbox.last_failure_message;
  }
  const sh = (id: string, script: string) => execIn(id, 'sh', '-c', `exec 2>&1; ${script}`);
  const hostVolume = async (org = client) => (await org.get('/v1/volumes/default')).body.id as string;
  /** The directory of a volume, which guests see at their mount. */
  const dataOf = async (volumeId: string, org = client) => service.ctx.volumes.ensure(org.org.id, volumeId);
  const mountsOfRoom = () =>
    readFileSync('/proc/self/mountinfo', 'utf8')
      .split('\n')
      .filter((line) => line.includes(room));
  const leftovers = () => (existsSync(room) ? readdirSync(room) : []);

  test('keep the data of a named volume beyond runs and sandboxes, and share it between mounts', async () => {
    const { body: volume } = await client.post('/v1/volumes', { name: 'shared' });
    const mounts = [{ type: 'named', name: 'shared', guest: '/data' }];
    const writer = await start(request('writer', mounts, { runtime: { user: '1234:1234' } }));
    await sh(writer, 'echo one > /data/one');
    const reader = await start(
      request('reader', [
        { type: 'named', name: 'shared', guest: '/elsewhere', options: { readonly: true } },
      ]),
    );
    expect(await sh(reader, 'cat /elsewhere/one; busybox stat -c %u:%g /elsewhere/one')).toBe(
      'one\n1234:1234\n',
    );

    for (let round = 0; round < 2; round += 1) {
      await client.post(`/v1/sandboxes/${writer}/stop`, {});
      await untilStatus(client, writer, 'stopped');
      const again = await client.post(`/v1/sandboxes/${writer}/start`, {}, { wait_for: 'running' });
      expect(again.body.status, again.text).toBe('running');
      expect(await sh(writer, `echo ${round} >> /data/rounds; cat /data/one`)).toBe('one\n');
    }
    await client.delete(`/v1/sandboxes/${writer}`);
    await client.delete(`/v1/sandboxes/${reader}`);
    const heir = await start(request('heir', mounts));
    expect(await sh(heir, 'cat /data/one /data/rounds')).toBe('one\n0\n1\n');
    const shown = await client.get(`/v1/sandboxes/${heir}`);
    expect(shown.text).not.toContain(volume.id);
    expect(shown.body.spec.mounts).toEqual([
      {
        type: 'Named',
        name: volume.name,
        guest: '/data',
        options: { nodev: false, noexec: false, nosuid: false, readonly: false },
        stat_virtualization: 'strict',
        host_permissions: 'private',
      },
    ]);
  });

  test('get no cap where no sandbox could mount them with one', async () => {
    const capabilities = service.runtime.capabilities as Set<Capability>;
    expect(capabilities.delete('volume_caps')).toBe(true);
    service.ctx.volumes.makesDisks = false;
    onTestFinished(() => {
      capabilities.add('volume_caps');
      service.ctx.volumes.makesDisks = true;
    });
    const create = (capacity_gib: number) => client.post('/v1/volumes', { name: 'capped', capacity_gib });
    const patch = (body: object) => client.request('PATCH', `/v1/volumes/${volume.id}`, { body });
    const capRefused = [400, 'invalid_request', { field: 'capacity_gib' }];
    const codeOf = ({ status, body }: Answer) => [status, body.error.code, body.error.details];
    const created = await create(1);
    expect(codeOf(created)).toEqual(capRefused);
    expect(created.body.error.message).toContain('leave capacity_gib out');

    // Their organization needs caps, and had a limit until now.
    const { pool } = service.ctx;
    const limit = (max_total_storage_gib: number | null) =>
      setQuotas(pool, client.org.id, { max_total_storage_gib }, operator('test'));
    await limit(50);
    const { body: volume } = await create(1);
    await limit(null);
    const mounting = request('mounts-capped', [{ type: 'named', name: 'capped', guest: '/data' }]);
    const refused = await client.post('/v1/sandboxes', mounting);
    expect(codeOf(refused)).toEqual([400, 'invalid_sandbox_config', { field: 'mounts[0].name' }]);
    expect(refused.body.error.message).toContain(`PATCH /v1/volumes/${volume.id}`);
    expect(codeOf(await patch({ capacity_gib: 2 }))).toEqual(capRefused);
    expect((await patch({ capacity_gib: null })).status).toBe(200);
    expect((await client.post('/v1/sandboxes', mounting)).status).toBe(200);
    await limit(50);
    const recapped = await patch({ capacity_gib: 2 });
    expect(codeOf(recapped)).toEqual([
      400,
      'invalid_request',
      { field: 'capacity_gib', sandboxes: ['mounts-capped'] },
    ]);
    await limit(null);
  });

  test('enforce readonly, noexec, nosuid and nodev, alone and together, and guests cannot remove them', async () => {
    await client.post('/v1/volumes', { name: 'flags' });
    const flags = ['readonly', 'noexec', 'nosuid', 'nodev'];
    const mounts = [
      ...flags.map((flag) => ({
        type: 'named',
        name: 'flags',
        guest: `/${flag}`,
        options: { [flag]: true },
      })),
      { type: 'named', name: 'flags', guest: '/none' },
      {
        type: 'named',
        name: 'flags',
        guest: '/all',
        options: Object.fromEntries(flags.map((flag) => [flag, true])),
      },
    ];
    const id = await start(request('flags', mounts));
    const table = await sh(id, 'cat /proc/mounts');
    const flagsAt = (guest: string) => {
      const words = new RegExp(`^\\S+ ${guest} \\S+ (\\S+) `, 'm').exec(table)![1]!.split(',');
      return ['ro', 'noexec', 'nosuid', 'nodev'].filter((word) => words.includes(word));
    };
    expect(flagsAt('/none')).toEqual([]);
    expect(flagsAt('/readonly')).toEqual(['ro']);
    for (const flag of ['noexec', 'nosuid', 'nodev']) expect(flagsAt(`/${flag}`)).toEqual([flag]);
    expect(flagsAt('/all')).toEqual(['ro', 'noexec', 'nosuid', 'nodev']);

    await sh(id, 'printf "#!/bin/sh\\necho ran" > /none/run; busybox chmod 4755 /none/run');
    expect(await sh(id, '/none/run; /nosuid/run; /nodev/run; /readonly/run')).toBe('ran\nran\nran\nran\n');
    expect(await sh(id, '/noexec/run; /all/run')).toMatch(/Permission denied[\s\S]*Permission denied/);
    expect(await sh(id, 'touch /readonly/x; touch /all/x')).toMatch(/Read-only[\s\S]*Read-only/);
    const remounted = await sh(id, 'mount -o remount,rw,exec,bind /all; touch /all/x; busybox umount /all');
    expect(remounted.match(/denied|not permitted|Read-only/g)).toHaveLength(3);
    // A restart of the machine removes mounts.
    await client.post(`/v1/sandboxes/${id}/stop`, {});
    await untilStatus(client, id, 'stopped');
    await client.post(`/v1/sandboxes/${id}/start`, {}, { wait_for: 'running' });
    expect(await sh(id, 'touch /all/x')).toContain('Read-only');
  });

  test('mount folders and files of the host volume, and report a missing one until it exists', async () => {
    const data = await dataOf(await hostVolume());
    mkdirSync(join(data, 'src/deep'), { recursive: true });
    writeFileSync(join(data, 'src/deep/a.txt'), 'a');
    writeFileSync(join(data, 'config'), 'b');
    const id = await start(
      request('binds', [
        { type: 'bind', host: './src', guest: '/src', options: { readonly: true } },
        { type: 'bind', host: 'src/deep/a.txt', guest: '/etc/a.txt' },
        { type: 'bind', host: '/config', guest: '/config', options: { readonly: true, noexec: true } },
        { type: 'bind', host: '.', guest: '/whole' },
      ]),
    );
    expect(await sh(id, 'cat /src/deep/a.txt /etc/a.txt /config /whole/config')).toBe('aabb');
    expect(await sh(id, 'echo x > /config; echo x > /src/x')).toMatch(/Read-only[\s\S]*Read-only/);
    await sh(id, 'printf c > /etc/a.txt');
    expect(readFileSync(join(data, 'src/deep/a.txt'), 'utf8')).toBe('c');

    const late = await create(client, request('late', [{ type: 'bind', host: 'not/yet', guest: '/in' }]));
    expect(late.last_failure_message).toBe(
      'mounts[0].host cannot be mounted: "not" does not exist: put it into the host volume first, then start again',
    );
    mkdirSync(join(data, 'not/yet'), { recursive: true });
    const again = await client.post(`/v1/sandboxes/${late.id}/start`, {}, { wait_for: 'running' });
    expect(again.body.status).toBe('running');
    expect(await refusal(request('through-a-file', [{ type: 'bind', host: 'config/x', guest: '/in' }]))).toBe(
      'mounts[0].host cannot be mounted: "config" is not a directory',
    );
    for (const host of ['../x', 'a/../../x']) {
      const { status, body } = await client.post(
        '/v1/sandboxes',
        request('dots', [{ type: 'bind', host, guest: '/in' }]),
      );
      expect([status, body.error.details]).toEqual([400, { field: 'mounts[0].host' }]);
    }
  });

  test('refuse symlinks and pipes planted by a guest, at any target', async () => {
    const guest = await start(request('planter', [{ type: 'bind', host: '.', guest: '/vol' }]));
    await sh(
      guest,
      `cd /vol; busybox mkdir -p plant/real; busybox ln -s /etc plant/absolute;
       busybox ln -s ../../../../../../etc plant/relative; busybox ln -s real plant/inside;
       busybox ln -s /etc/passwd plant/file; busybox ln -s /proc/1/root plant/proc; busybox mkfifo plant/pipe`,
    );
    const link = 'is a symbolic link, which is not followed';
    const cases: [host: string, message: string][] = [
      ['plant/absolute', 'it is a symbolic link, which is not followed'],
      ['plant/relative', 'it is a symbolic link, which is not followed'],
      ['plant/inside', 'it is a symbolic link, which is not followed'],
      ['plant/file', 'it is a symbolic link, which is not followed'],
      ['plant/absolute/ssh', `"absolute" ${link}`],
      ['plant/relative/ssh/x', `"relative" ${link}`],
      ['plant/inside/x', `"inside" ${link}`],
      ['plant/proc/etc', `"proc" ${link}`],
      ['plant/pipe', 'it is neither a directory nor a file'],
    ];
    for (const [index, [host, message]] of cases.entries()) {
      expect(await refusal(request(`planted-${index}`, [{ type: 'bind', host, guest: '/in' }]))).toBe(
        `mounts[0].host cannot be mounted: ${message}`,
      );
    }
    await until(
      () => Promise.resolve([...mountsOfRoom(), ...leftovers()]),
      (left) => left.length === 0,
    );
  });

  test("mount only the guest's own folder while it swaps that folder for a symlink", async () => {
    const secret = mkdtempSync(join(tmpdir(), 'sandkeep-secret-'));
    mkdirSync(join(secret, 'in'));
    writeFileSync(join(secret, 'in', 'secret'), '');
    const guest = await start(
      request('swapper', [{ type: 'bind', host: '.', guest: '/vol' }], {
        runtime: {
          cmd: [
            'sh',
            '-c',
            `cd /vol; busybox mkdir -p race/d/in; touch race/d/in/own; busybox ln -s ${secret} race/l;
             while :; do busybox mv race/d race/e; busybox mv race/l race/d; sleep 0.003; busybox mv race/d race/l; busybox mv race/e race/d; sleep 0.01; done`,
          ],
        },
      }),
    );
    const outcomes: string[] = [];
    // The mount of the own folder depends on chance: repeat until it happened.
    for (let round = 0; round < 8 || (round < 40 && !outcomes.includes('mounted')); round += 1) {
      const host = round % 2 === 0 ? 'race/d' : 'race/d/in';
      const sandbox = await create(client, request(`racer-${round}`, [{ type: 'bind', host, guest: '/in' }]));
      if (sandbox.status === 'running') {
        const seen = await sh(sandbox.id, 'busybox find /in -type f');
        expect(seen.trim()).toBe(round % 2 === 0 ? '/in/in/own' : '/in/own');
        outcomes.push('mounted');
      } else {
        expect(sandbox.last_failure_message).toMatch(
          /^mounts\[0\]\.host cannot be mounted: .*(symbolic link|exist|is not a directory)/,
        );
        outcomes.push('refused');
      }
      await client.delete(`/v1/sandboxes/${sandbox.id}`);
    }
    expect(outcomes).toContain('mounted');
    await client.delete(`/v1/sandboxes/${guest}`);
    rmSync(secret, { recursive: true });
    await until(
      () => Promise.resolve(leftovers()),
      (left) => left.length === 0,
    );
  });

  test('keep organizations with equal names of volumes and paths apart', async () => {
    const seen: string[] = [];
    for (const org of [client, other]) {
      await org.post('/v1/volumes', { name: 'same' });
      mkdirSync(join(await dataOf(await hostVolume(org), org), 'same'), { recursive: true });
      const id = await start(
        request('same', [
          { type: 'named', name: 'same', guest: '/named' },
          { type: 'bind', host: 'same', guest: '/bind' },
        ]),
        org,
      );
      await sh(id, `touch /named/${org.org.slug} /bind/${org.org.slug}`);
      seen.push(await sh(id, 'ls /named /bind'));
    }
    const own = ({ org }: Client) => `/bind:\n${org.slug}\n\n/named:\n${org.slug}\n`;
    expect(seen).toEqual([own(client), own(other)]);
  });

  test('allow mounts below mounts, together with scripts and a tmpfs, in every run', async () => {
    const { body: volume } = await client.post('/v1/volumes', { name: 'outer' });
    mkdirSync(join(await dataOf(await hostVolume()), 'inner'), { recursive: true });
    const id = await start(
      request(
        'nested',
        [
          { type: 'named', name: 'outer', guest: '/data' },
          { type: 'bind', host: 'inner', guest: '/data/in/ner', options: { noexec: true } },
          { type: 'tmpfs', guest: '/data/cache', size_mib: 1 },
        ],
        { runtime: { scripts: { hello: 'echo hello' } } },
      ),
    );
    for (let round = 0; round < 2; round += 1) {
      await sh(id, 'touch /data/outer /data/in/ner/inner /data/cache/cached');
      expect(await sh(id, 'busybox find /data -type f; hello')).toBe(
        (await sh(id, 'busybox find /data -type f')) + 'hello\n',
      );
      await client.post(`/v1/sandboxes/${id}/stop`, {});
      await untilStatus(client, id, 'stopped');
      await client.post(`/v1/sandboxes/${id}/start`, {}, { wait_for: 'running' });
    }
    expect(readdirSync(await dataOf(volume.id)).toSorted()).toEqual(['cache', 'in', 'outer']);
    expect(readdirSync(join(await dataOf(await hostVolume()), 'inner'))).toEqual(['inner']);
  });

  test('name a mount that the engine cannot make by its guest path, without a path of this machine', async () => {
    await client.post('/v1/volumes', { name: 'stuck' });
    const stuck = { type: 'named', name: 'stuck', guest: '/data', options: { readonly: true } };
    const messages = [
      await refusal(request('stuck-1', [stuck, { type: 'tmpfs', guest: '/data/x' }])),
      await refusal(request('stuck-2', [{ ...stuck, guest: '/bin/busybox' }])),
      // A mount does not fit beside the /etc/hosts of the service either.
      await refusal(request('stuck-3', [{ ...stuck, guest: '/etc' }])),
    ];
    expect(messages).toEqual([
      expect.stringMatching(/^a mount cannot be placed at \/data\/x: check/),
      expect.stringMatching(/^a mount cannot be placed at \/bin\/busybox: check/),
      expect.stringContaining('is hidden by the mount at /etc'),
    ]);
    for (const message of messages) expect(message).not.toMatch(/\/run\/sandkeep|overlay2|\/var\/lib/);
  });

  test('leave no mount outside a sandbox after its start', async () => {
    await client.post('/v1/volumes', { name: 'gone' });
    const id = await start(request('gone', [{ type: 'named', name: 'gone', guest: '/data' }]));
    await until(
      () => Promise.resolve([...mountsOfRoom(), ...leftovers()]),
      (left) => left.length === 0,
    );
    // A start outside the service fails, because the volume's folder is not mounted: an empty folder never replaces
    // it.
    const container = (await containerOf(id))!;
    await container.stop({ t: 0 });
    await expect(container.start()).rejects.toThrow(/bind source path does not exist|no such file/);
  });

  test("are refused where the engine does not see the service's mounts, and doctor has the reason", async () => {
    // In its own mount namespace the service can mount, but the engine is outside.
    const { out } = await startProgram([
      'unshare',
      '--mount',
      ...PROGRAM,
      'doctor',
      '--json',
      '--docker-socket',
      SOCKET,
      '--data-dir',
      '/nonexistent',
    ]).ended;
    expect(JSON.parse(out).find(({ check }: any) => check === 'docker').found).toContain(
      'no volumes, because the Docker engine does not see what this process mounts',
    );
  });

  test('are unmounted by the next start after a kill during a start', async () => {
    const { body: volume } = await client.post('/v1/volumes', { name: 'killed' });
    const mounts = [{ type: 'named', name: 'killed', guest: '/data', options: { readonly: true } }];
    const { id } = await create(client, request('killed', mounts), {});
    const victim = `
      import { StagingDirectory } from '${PACKAGE_ROOT}/dist/src/engines/docker/mounts/staging-directory.js';
      import { VolumeStore } from '${PACKAGE_ROOT}/dist/src/volumes/storage/store.js';
      const room = new StagingDirectory('${room}', new VolumeStore('${service.volumesDir}'), new Map(), undefined);
      const mounts = [{ ...${JSON.stringify(mounts[0])}, volumeId: '${volume.id}' }];
      const staged = await room.stage({ orgId: '${client.org.id}', sandboxId: '${id}', spec: { mounts, scripts: {}, shell: null } });
      await staged.attach();
      process.kill(process.pid, 'SIGKILL');
      await new Promise(() => setTimeout(() => undefined, 10_000));`;
    const child = spawnSync(process.execPath, ['--input-type=module', '--eval', victim], {
      encoding: 'utf8',
    });
    expect([child.signal, child.stderr]).toEqual(['SIGKILL', '']);
    // That of the volume, and that of the files of the service.
    expect(mountsOfRoom()).toHaveLength(2);
    writeFileSync(join(await dataOf(volume.id), 'precious'), 'kept');
    const { body } = await client.post(`/v1/sandboxes/${id}/start`, {}, { wait_for: 'running' });
    expect(body.status, JSON.stringify(body)).toBe('running');
    expect(await sh(id, 'cat /data/precious')).toBe('kept');
    await until(
      () => Promise.resolve([...mountsOfRoom(), ...leftovers()]),
      (left) => left.length === 0,
    );
  });

  test('left mounted by a crash are unmounted, and keep their data', async () => {
    const { body: volume } = await client.post('/v1/volumes', { name: 'crashed' });
    const data = await dataOf(volume.id);
    writeFileSync(join(data, 'precious'), 'kept');
    writeFileSync(join(data, 'empty'), '');
    for (const name of ['00000000-0000-7000-8000-000000000001', '00000000-0000-7000-8000-000000000002.new']) {
      mkdirSync(join(room, name, '0'), { recursive: true });
      writeFileSync(join(room, name, '1'), '');
      execFileSync('mount', ['--bind', data, join(room, name, '0')]);
      execFileSync('mount', ['--bind', data, join(room, name, '0')]);
      execFileSync('mount', ['--bind', join(data, 'precious'), join(room, name, '1')]);
    }
    expect(mountsOfRoom()).toHaveLength(6);
    await service.runtime.takeOver({ valid: true });
    expect([mountsOfRoom(), leftovers()]).toEqual([[], []]);
    expect(readdirSync(data).toSorted()).toEqual(['empty', 'precious']);
    expect(readFileSync(join(data, 'precious'), 'utf8')).toBe('kept');
  });
});
