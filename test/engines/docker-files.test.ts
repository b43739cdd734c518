import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { stringifyExact, type Integer } from '../../src/lib/exact-json.js';
import { DockerRuntime } from '../../src/engines/docker/runtime.js';
import { VolumeStore } from '../../src/volumes/storage/store.js';
import type { Client } from '../support/client.js';
import { destroyAll, onDocker } from '../support/docker-service.js';
import { containerOf, describeDocker, docker, execIn, exportedFile } from '../support/docker.js';
import { IMAGE, makeImage, SOCKET } from '../support/docker.js';
import { startTestService, type TestService } from '../support/service.js';
import { until } from '../support/polling.js';

/** The plain image with users, links, an entrypoint and a PATH. */
const FURNISHED = 'sandkeep-test:furnished';
const UNLIMITED = 2n ** 64n - 1n;
const TAKEN = '/etc/motd already exists, and replace is false';

describeDocker('files and processes in containers', () => {
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    makeImage();
    await furnish();
    service = await startTestService({
      ...onDocker({ capacity: { vcpus: 100, memoryMib: 100_000 } }),
      settings: { stopGraceMs: 200 },
    });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
    await docker.getImage('sandkeep-test:as-worker').remove({ force: true });
    await docker.getImage(FURNISHED).remove({ force: true });
  });

  async function furnish(): Promise<void> {
    const script = `busybox mkdir -p /usr/bin /var/run /opt; busybox chmod 1777 /tmp; busybox ln -s /bin/busybox /usr/bin/env
      echo "root:x:0:0:::
worker:x:1500:1600:::" > /etc/passwd
      echo "crew:x:1700:" > /etc/group
      echo one > /etc/motd; busybox chmod 640 /etc/motd; busybox chown 3:4 /etc/motd
      busybox ln -s ../etc/motd /opt/link; busybox ln -s /opt/loop /opt/loop
      busybox ln -s ${outside} /opt/outside; busybox ln -s ../../../../../..${outside} /opt/above
      busybox ln -s /data /opt/mounted`;
    const container = await docker.createContainer({
      Image: IMAGE,
      Cmd: ['sh', '-c', script],
      HostConfig: { NetworkMode: 'none' },
    });
    await container.start();
    await container.wait();
    const changes = ['ENV PATH=/bin:/opt/bin', 'ENTRYPOINT ["/bin/sh", "-c"]', 'VOLUME /declared'];
    await container.commit({ repo: 'sandkeep-test', tag: 'furnished', changes });
    await container.remove();
  }
  const outside = mkdtempSync(join(tmpdir(), 'sandkeep-outside-'));
  afterAll(() => rmSync(outside, { recursive: true }));

  let count = 0;
  async function create(spec: Record<string, unknown>): Promise<any> {
    count += 1;
    const body = {
      name: `files-${count}`,
      image: { type: 'oci', reference: FURNISHED },
      pull_policy: 'never',
      ...spec,
    };
    const query = { start: true, wait_for: 'running', wait_timeout: 120 };
    const answer = await client.post('/v1/sandboxes', stringifyExact(body), query);
    expect(answer.status, answer.text).toBe(200);
    return answer.body;
  }
  async function start(spec: Record<string, unknown>): Promise<string> {
    const sandbox = await create(spec);
    expect(sandbox.status, JSON.stringify(sandbox)).toBe('running');
    return sandbox.id;
  }
  const sh = (id: string, script: string) => execIn(id, 'sh', '-c', `exec 2>&1; ${script}`);
  const said = (id: string, script: string, text: RegExp) =>
    until(() => sh(id, script), text.test.bind(text));
  /** A file in /proc of the command, which becomes the child of process 1. */
  const ofMain = (id: string, file: string) =>
    sh(
      id,
      `x=; until [ "$x" ]; do busybox sleep 0.1; read -r x _ < /proc/1/task/1/children; done; busybox tr '\\0' '\\n' < /proc/$x/${file}`,
    );

  test('have the requested entrypoint, cmd, env, user and workdir', async () => {
    const tool = '#!/bin/sh\necho "$#:$1:$2:$0" > /tmp/args; exec sleep 600';
    const id = await start({
      patches: [{ type: 'text', path: '/opt/my tool -x', content: tool, mode: 0o755, replace: false }],
      runtime: { entrypoint: ['/opt/my tool -x'], cmd: ['a b', '$HOME'], workdir: '/made/here', user: '7:8' },
      env: [
        { key: 'A', value: 'x=y z' },
        { key: 'EMPTY', value: '' },
      ],
    });
    await until(
      () => sh(id, 'cat /tmp/args'),
      (text) => text === '2:a b:$HOME:/opt/my tool -x\n',
    );
    expect(await ofMain(id, 'environ')).toMatch(/^A=x=y z$/m);
    expect(await ofMain(id, 'environ')).toMatch(/^EMPTY=$/m);
    expect(await sh(id, `busybox readlink /proc/$(cat /proc/1/task/1/children | cut -d' ' -f1)/cwd`)).toBe(
      '/made/here\n',
    );
    expect(await ofMain(id, 'status')).toMatch(/^Uid:\t7\t7\t7\t7\nGid:\t8\t8\t8\t8$/m);

    const users: [user: string, uid: number, gid: number][] = [
      ['1234', 1234, 0],
      ['worker', 1500, 1600],
      ['worker:crew', 1500, 1700],
      ['7:crew', 7, 1700],
    ];
    for (const [user, uid, gid] of users) {
      const who = await start({ runtime: { user, cmd: ['sleep 600'] } });
      expect(await ofMain(who, 'status'), user).toMatch(new RegExp(`^Uid:\t${uid}\t.*\nGid:\t${gid}\t`, 'm'));
    }
    const nobody = await create({ runtime: { user: 'stranger', cmd: ['sleep 600'] } });
    expect([nobody.status, nobody.last_failure_message]).toEqual([
      'failed',
      'unable to find user stranger: no matching entries in passwd file',
    ]);
  });

  test('have the missing parts of the working directory made for their user', async () => {
    const of = async (id: string, ...paths: string[]) =>
      (await sh(id, `busybox stat -c '%U %u %g %a' ${paths.join(' ')}`)).trim().split('\n');
    const write = async (id: string) => {
      const args = ['-c', 'pwd; echo ok > written; cat written'];
      return (await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'sh', args })).body.stdout;
    };
    for (const [user, owner] of [
      ['1234', 'UNKNOWN 1234 0 755'],
      ['worker:crew', 'worker 1500 1700 755'],
      ['7:crew', 'UNKNOWN 7 1700 755'],
    ] as const) {
      const id = await start({ runtime: { user, workdir: '/srv/new/deep/', cmd: ['sleep 600'] } });
      expect(await of(id, '/srv', '/srv/new', '/srv/new/deep'), user).toEqual(['root 0 0 755', owner, owner]);
      expect(await write(id), user).toBe('/srv/new/deep\nok\n');
    }
    // The user of the image, also without a command of the sandbox; a mount; and a link to a directory.
    const tagged = await docker.createContainer({ Image: FURNISHED, Cmd: ['true'] });
    await tagged.commit({ repo: 'sandkeep-test', tag: 'as-worker', changes: ['USER worker'] });
    await tagged.remove();
    const byImage = await start({
      image: { type: 'oci', reference: 'sandkeep-test:as-worker' },
      runtime: { workdir: '/app' },
    });
    expect(await of(byImage, '/app')).toEqual(['worker 1500 1600 755']);
    await client.delete(`/v1/sandboxes/${byImage}`);
    const runtime = { user: 'worker', workdir: '/scratch/a/b', cmd: ['sleep 600'] };
    const mounted = await start({ mounts: [{ type: 'tmpfs', guest: '/scratch' }], runtime });
    expect(await of(mounted, '/scratch/a', '/scratch/a/b')).toEqual(Array(2).fill('worker 1500 1600 755'));
    expect(await write(mounted)).toBe('/scratch/a/b\nok\n');
    const linked = await start({
      patches: [{ type: 'symlink', link: '/way', target: '/tmp', replace: false }],
      runtime: { user: 'worker', workdir: '/way/x', cmd: ['sleep 600'] },
    });
    expect(await of(linked, '/tmp/x')).toEqual(['worker 1500 1600 755']);
    await sh(linked, 'busybox rm -r /tmp/x');
    await client.post(`/v1/sandboxes/${linked}/restart`, {}, { wait_for: 'running' });
    expect(await of(linked, '/tmp/x')).toEqual(['worker 1500 1600 755']);
    const file = await create({ runtime: { workdir: '/etc/motd', cmd: ['sleep 600'] } });
    expect(file.last_failure_message).toBe('runtime.workdir is not a directory');
  });

  test('have every limit of the container engine from the first process on', async () => {
    // Raising the limits with default 0 takes rights that the engine may lack.
    const limits: [resource: string, shown: string, soft: Integer, hard: Integer][] = [
      ['cpu', 'Max cpu time', 50, 60],
      ['fsize', 'Max file size', 1_000_000, 2_000_000],
      // Newer engines need 200 MB for the start itself.
      ['data', 'Max data size', 300_000_000, 400_000_000],
      ['stack', 'Max stack size', 4_000_000, 8_000_000],
      ['core', 'Max core file size', 0, 1000],
      ['rss', 'Max resident set', 2n ** 53n + 1n, UNLIMITED - 1n],
      ['nproc', 'Max processes', 500, 600],
      ['nofile', 'Max open files', 100, 200],
      ['memlock', 'Max locked memory', 4096, 8192],
      ['locks', 'Max file locks', 10, 20],
      ['sigpending', 'Max pending signals', 30, 40],
      ['msgqueue', 'Max msgqueue size', 5000, 6000],
      ['nice', 'Max nice priority', 0, 0],
      ['rtprio', 'Max realtime priority', 0, 0],
      ['rttime', 'Max realtime timeout', 2n ** 63n + 1n, UNLIMITED],
    ];
    const id = await start({
      rlimits: limits.map(([resource, , soft, hard]) => ({ resource, soft, hard })),
      runtime: { cmd: ['busybox cat /proc/self/limits > /tmp/limits; sleep 600'] },
    });
    const table = await said(id, 'cat /tmp/limits', /Max realtime timeout/);
    for (const [resource, shown, soft, hard] of limits) {
      expect(table, resource).toMatch(
        new RegExp(`^${shown}\\s+${soft}\\s+${hard === UNLIMITED ? 'unlimited' : hard}\\s`, 'm'),
      );
    }
  });

  test.each(['data', 'nofile'])(
    'too small in %s for the start fail by name, and do not wait',
    async (resource) => {
      const rlimits = [{ resource, soft: 5, hard: 5 }];
      const failed = await create({ rlimits, runtime: { cmd: ['sleep 600'] } });
      expect(failed.last_failure_message).toContain(`the limit ${resource} in rlimits is too small`);
    },
  );

  test("cannot have a limit on open files above the kernel's, which is refused by its field", async () => {
    const image = { type: 'oci', reference: FURNISHED };
    const rlimits = [{ resource: 'nofile', soft: 1, hard: UNLIMITED }];
    const asked = stringifyExact({ name: 'files-high', image, rlimits });
    const { status, body } = await client.post('/v1/sandboxes', asked);
    expect([status, body.error.details]).toEqual([400, { field: 'rlimits[0].hard' }]);
    expect(body.error.message).toContain('fs.nr_open');
  });

  test('have limited capabilities, privileges, system calls and numbers of processes', async () => {
    const capabilities = async (id: string) => {
      const status = await ofMain(id, 'status');
      expect(status).toMatch(/^NoNewPrivs:\t1$/m);
      expect(status).toMatch(/^Seccomp:\t2$/m);
      return ['CapBnd', 'CapPrm', 'CapEff', 'CapAmb'].map((name) =>
        Number.parseInt(new RegExp(`^${name}:\t(\\w+)$`, 'm').exec(status)![1]!, 16),
      );
    };
    const cmd = ['sleep 600'];
    // CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID
    const six = [0, 1, 3, 5, 6, 7].reduce((mask, bit) => mask | (1 << bit), 0);
    const plain = await start({ runtime: { cmd } });
    expect(await capabilities(plain)).toEqual([six, six, six, 0]);
    expect(await sh(plain, 'busybox chown 5:5 /tmp && busybox mknod /tmp/disk b 8 0')).toContain(
      'not permitted',
    );
    expect(await sh(plain, 'busybox unshare -U true')).toContain('not permitted');
    expect(await sh(plain, 'cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max')).toContain('256');

    const restricted = await start({ runtime: { cmd }, security_profile: 'restricted' });
    expect(await capabilities(restricted)).toEqual([0, 0, 0, 0]);
    expect(await sh(restricted, 'busybox chown 5:5 /tmp')).toContain('not permitted');
    const user = await start({ runtime: { cmd, user: '1234' } });
    expect((await capabilities(user)).slice(1)).toEqual([0, 0, 0]);
  });

  test('have their scripts before the first process, at the end of the PATH', async () => {
    const id = await start({
      runtime: {
        cmd: ['greet you > /tmp/out; sleep 600'],
        scripts: {
          greet: '#!/bin/sh\necho "hello $1"',
          plain: 'echo "by $(busybox basename $0)"',
          cat: 'echo not this one',
          '..data': '',
        },
      },
    });
    await said(id, 'cat /tmp/out; plain', /^hello you\nby plain\n$/);
    expect(
      await sh(id, 'echo $PATH; busybox stat -c "%a %u:%g %n" /.sandkeep/scripts /.sandkeep/scripts/*'),
    ).toBe(
      [
        '/bin:/opt/bin:/.sandkeep/scripts',
        '755 0:0 /.sandkeep/scripts',
        ...['cat', 'greet', 'plain'].map((name) => `755 0:0 /.sandkeep/scripts/${name}`),
        '',
      ].join('\n'),
    );
    const shown = (await client.get(`/v1/sandboxes/${id}`)).body.spec;
    expect([shown.runtime.scripts.plain, shown.env]).toEqual(['echo "by $(busybox basename $0)"', []]);

    const other = await start({
      runtime: { cmd: ['sleep 600'], shell: 'sh', scripts: { run: 'echo $0\n' } },
      env: [{ key: 'PATH', value: '/bin' }],
    });
    expect(await sh(other, 'echo $PATH; cat /.sandkeep/scripts/run; /.sandkeep/scripts/run')).toBe(
      '/bin\n#!/usr/bin/env sh\necho $0\n/.sandkeep/scripts/run\n',
    );
    const inTheWay = await client.post('/v1/sandboxes', {
      name: 'in-the-way',
      image: { type: 'oci', reference: IMAGE },
      mounts: [{ type: 'tmpfs', guest: '/.sandkeep/scripts' }],
    });
    expect([inTheWay.status, inTheWay.body.error.details]).toEqual([400, { field: 'mounts[0].guest' }]);
  });

  test('have their patches applied in order before the first process', async () => {
    const id = await start({
      runtime: { cmd: ['cat /etc/motd /opt/new/deep/text > /tmp/seen; sleep 600'] },
      patches: [
        { type: 'append', path: '/opt/link', content: 'two\n' },
        { type: 'text', path: '/opt/new/deep/text', content: 'grüß\n', replace: false },
        { type: 'file', path: '/opt/bytes', content: [0, 255, 10], mode: 0o4711, replace: false },
        { type: 'mkdir', path: '/opt/dir', mode: 0o1777 },
        { type: 'mkdir', path: '/etc' },
        { type: 'text', path: '/opt/dir/again', content: 'first', replace: false },
        { type: 'text', path: '/opt/dir/again', content: 'second', replace: true },
        { type: 'symlink', target: '../etc/motd', link: '/opt/dir/again', replace: true },
        { type: 'symlink', target: '/nowhere', link: '/opt/dangling', replace: false },
        { type: 'append', path: '/opt/new/deep/text', content: 'more\n' },
      ],
    });
    await said(id, 'cat /tmp/seen', /^one\ntwo\ngrüß\nmore\n$/);
    expect(
      await sh(
        id,
        `busybox stat -c '%a %u:%g %N' /etc/motd /opt/new /opt/new/deep/text /opt/bytes /opt/dir /opt/dir/again /opt/dangling /etc
         busybox od -An -tx1 /opt/bytes`,
      ),
    ).toBe(
      `640 3:4 /etc/motd
755 0:0 /opt/new
644 0:0 /opt/new/deep/text
4711 0:0 /opt/bytes
1777 0:0 /opt/dir
777 0:0 '/opt/dir/again' -> '../etc/motd'
777 0:0 '/opt/dangling' -> '/nowhere'
755 0:0 /etc
 00 ff 0a
`,
    );
    // At later starts the disk keeps the changes of the sandbox.
    await sh(id, 'echo mine > /etc/motd');
    await client.post(`/v1/sandboxes/${id}/stop`, {});
    await until(
      () => client.get(`/v1/sandboxes/${id}`),
      ({ body }) => body.status === 'stopped',
    );
    await client.post(`/v1/sandboxes/${id}/start`, {}, { wait_for: 'running' });
    expect(await sh(id, 'cat /etc/motd')).toBe('mine\n');
  });

  test('name a failing patch and its reason, and the next start begins with a new container', async () => {
    const refused: [patch: Record<string, unknown>, message: string][] = [
      [{ type: 'text', path: '/etc/motd', content: 'x', replace: false }, TAKEN],
      [{ type: 'text', path: '/etc', content: 'x', replace: true }, '/etc is a directory'],
      [{ type: 'text', path: '/etc/motd/x', content: 'x', replace: true }, '/etc/motd is not a directory'],
      [{ type: 'symlink', target: 'x', link: '/etc', replace: true }, '/etc is a directory'],
      [{ type: 'mkdir', path: '/etc/motd' }, '/etc/motd exists and is not a directory'],
      [{ type: 'append', path: '/etc/none', content: 'x' }, '/etc/none does not exist'],
      [{ type: 'append', path: '/etc', content: 'x' }, '/etc is not a file'],
    ];
    for (const [patch, message] of refused) {
      const first = { type: 'append', path: '/etc/motd', content: 'once' };
      const { id, status, last_failure_message } = await create({ patches: [first, patch] });
      expect([status, last_failure_message]).toEqual(['failed', `patches[1] cannot be applied: ${message}`]);
      const again = await client.post(`/v1/sandboxes/${id}/start`, {}, { wait_for: 'running' });
      expect(again.body.last_failure_message).toBe(last_failure_message);
      expect(await exportedFile((await containerOf(id))!, 'etc/motd')).toBe('one\nonce');
    }
    for (const path of ['/etc/hosts', '/etc/hostname', '/etc/resolv.conf', '/data/x', '/.sandkeep/x']) {
      const { status, body } = await client.post('/v1/sandboxes', {
        name: 'refused',
        image: { type: 'oci', reference: IMAGE },
        mounts: [{ type: 'tmpfs', guest: '/data' }],
        patches: [{ type: 'append', path, content: 'x' }],
      });
      expect([status, body.error.code, body.error.details.field], path).toEqual([
        400,
        'invalid_sandbox_config',
        expect.stringMatching(/^patches\[0\]/),
      ]);
    }
  });

  test('keep a patch through links of the image inside the container', async () => {
    for (const link of ['outside', 'above']) {
      const patches = [{ type: 'text', path: `/opt/${link}/escaped`, content: 'x', replace: true }];
      await create({ runtime: { cmd: ['sleep 600'] }, patches });
    }
    await create({ patches: [{ type: 'append', path: '/opt/loop', content: 'x' }] });
    expect(readdirSync(outside)).toEqual([]);
  });

  test('refuse a patch that links of the image lead into a volume, and leave the volume unchanged', async () => {
    const { body: volume } = await client.post('/v1/volumes', { name: 'patched' });
    const mounts = [
      { type: 'named', name: 'patched', guest: '/data' },
      { type: 'named', name: 'patched', guest: '/data/in/side' },
    ];
    for (const [path, found] of [
      ['/opt/mounted/x', '/data/x'],
      ['/opt/mounted/in/x', '/data/in/x'],
      ['/opt/mounted/in/side/x', '/data/in/side/x'],
    ]) {
      const patches = [{ type: 'text', path, content: 'x', replace: true }];
      const { id, status, last_failure_message } = await create({ mounts, patches });
      expect([status, last_failure_message]).toEqual([
        'failed',
        expect.stringContaining(`follows a link of the image to ${found}, which the mount at /data`),
      ]);
      await client.delete(`/v1/sandboxes/${id}`);
    }
    expect(readdirSync(await service.ctx.volumes.ensure(client.org.id, volume.id))).toEqual([]);
    const id = await start({ mounts, runtime: { cmd: ['sleep 600'], scripts: { hello: 'echo hello' } } });
    expect(await sh(id, 'hello; touch /data/in/side/x; ls /data')).toBe('hello\nin\nx\n');
  });

  test('have a tmpfs with its size and its flags', async () => {
    const options = { readonly: true, noexec: true, nosuid: true, nodev: true };
    const id = await start({
      runtime: { cmd: ['sleep 600'] },
      mounts: [
        { type: 'tmpfs', guest: '/all', size_mib: 1, options },
        { type: 'tmpfs', guest: '/none', size_mib: 1 },
      ],
    });
    const table = await sh(id, 'cat /proc/mounts');
    expect(table).toMatch(/^tmpfs \/all tmpfs ro,nosuid,nodev,noexec,.*size=1024k/m);
    expect(table).toMatch(/^tmpfs \/none tmpfs rw,relatime,size=1024k/m);
    expect(await sh(id, 'touch /all/x')).toContain('Read-only');
    expect(await sh(id, 'dd if=/dev/zero of=/none/x bs=1M count=2')).toContain('No space left');
  });

  test('use the configured runtime class, and name one that the engine lacks', async () => {
    const volumes = new VolumeStore(join(outside, 'volumes'));
    const options = { socketPath: SOCKET, network: 'none', volumes };
    await expect(DockerRuntime.connect('x', { ...options, runtimeClass: 'runsc-missing' })).rejects.toThrow(
      /^the Docker engine has no runtime "runsc-missing": name one of .*\brunc\b.* with --docker-runtime/,
    );
    const other = await startTestService({
      runtime: (instanceId) => DockerRuntime.connect(instanceId, { ...options, runtimeClass: 'runc' }),
    });
    try {
      const org = await other.newOrg();
      const body = { name: 'classy', image: { type: 'oci', reference: IMAGE }, pull_policy: 'never' };
      const { body: sandbox } = await org.post('/v1/sandboxes', body, { start: true, wait_for: 'running' });
      expect((await (await containerOf(sandbox.id))!.inspect()).HostConfig.Runtime).toBe('runc');
      expect(other.runtime.description).toContain('by runc');
      await org.delete(`/v1/sandboxes/${sandbox.id}`);
      await until(
        () => other.runtime.list(),
        (held) => held.length === 0,
      );
    } finally {
      await other.close();
    }
  });

  test('report errors of a registry about an image in plain words', async () => {
    const failing = async (answer: RequestListener): Promise<string> => {
      const registry = createServer((request, response) => {
        if (request.url === '/v2/') response.end('{}');
        else answer(request, response);
      });
      await new Promise<void>((resolve) => registry.listen(0, '127.0.0.1', resolve));
      const { port } = registry.address() as AddressInfo;
      try {
        const image = { type: 'oci', reference: `127.0.0.1:${port}/team/app:1` };
        const { status, last_failure_message } = await create({ image, pull_policy: 'always' });
        expect(status).toBe('failed');
        return last_failure_message.replaceAll(String(port), 'PORT');
      } finally {
        registry.closeAllConnections();
        registry.close();
      }
    };
    const error =
      (status: number, code: string): RequestListener =>
      (_, response) => {
        response.writeHead(status, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ errors: [{ code, message: code.toLowerCase() }] }));
      };
    const begin = 'the image 127.0.0.1:PORT/team/app:1 cannot be pulled: ';
    expect(await failing(error(404, 'MANIFEST_UNKNOWN'))).toBe(`${begin}the registry has no such image`);
    expect(await failing(error(401, 'UNAUTHORIZED'))).toBe(
      `${begin}the registry has no such repository, or requires credentials`,
    );
    expect(await failing(error(429, 'TOOMANYREQUESTS'))).toBe(
      `${begin}the registry allows no more pulls for now`,
    );
    const foreign = JSON.stringify({
      schemaVersion: 2,
      mediaType: 'application/vnd.docker.distribution.manifest.list.v2+json',
      manifests: [
        {
          mediaType: 'application/vnd.docker.distribution.manifest.v2+json',
          size: 7,
          digest: `sha256:${'a'.repeat(64)}`,
          platform: { architecture: 's390x', os: 'linux' },
        },
      ],
    });
    const list: RequestListener = (_, response) => {
      response.setHeader('content-type', 'application/vnd.docker.distribution.manifest.list.v2+json');
      response.end(foreign);
    };
    expect(await failing(list)).toBe(`${begin}it does not exist for the platform of this machine`);
    const { last_failure_message } = await create({
      image: { type: 'oci', reference: '127.0.0.1:1/team/app:1' },
      pull_policy: 'always',
    });
    expect(last_failure_message).toMatch(/: the registry cannot be reached from this machine$/);
  });
});
