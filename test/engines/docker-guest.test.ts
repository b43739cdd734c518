import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { Guest } from '../../src/guest/guest.js';
import { HostConnection } from '../../src/guest/host-connection.js';
import {
  installApplets,
  openDockerTarget,
  startSandbox,
  type SandboxOptions,
  type TestSandbox,
} from '../support/docker-guest.js';
import { describeImage, makeBases, NODE_BASE } from '../support/container-image.js';
import { DockerGuests } from '../../src/engines/docker/guests.js';
import { describeDocker, docker, importImage, makeImage, SOCKET } from '../support/docker.js';
import {
  connectSoon,
  errorOf,
  isAlive,
  READ,
  readAll,
  run,
  sh,
  TestCommand,
  TestConnection,
  WRITE,
  writeAll,
} from '../support/guest.js';
import { until } from '../support/polling.js';
import { prepareImages } from '../support/prepare-images.js';
import { guestConformance } from './guest-conformance.js';

const SCRATCH = 'sandkeep-test:one-program';
const HOLDER = fileURLToPath(new URL('../support/hold-guest.mjs', import.meta.url));

/** Answers every question of type A with 127.0.0.1, for one connection. */
const NAME_SERVER = `
hex() { od -An -v -tx1 | tr -d ' \\n'; }
query=$(dd bs=4096 count=1 2>/dev/null | hex)
id=$(echo $query | cut -c5-8) question=$(echo $query | cut -c29-)
case $question in
  *00010001) answers=0001 answer=c00c000100010000000100047f000001 ;;
  *) answers=0000 answer= ;;
esac
message=\${id}81800001\${answers}00000000\${question}\${answer}
length=$(printf %04x $((\${#message} / 2)))
printf "$(echo $length$message | sed 's/../\\\\x&/g')"
`;

describeDocker('a guest on Docker', () => {
  let sandboxes: TestSandbox[] = [];
  beforeAll(() => makeImage());
  afterEach(async () => {
    await Promise.all(sandboxes.map((sandbox) => sandbox.remove()));
    sandboxes = [];
  });

  async function start(options: SandboxOptions = {}): Promise<TestSandbox & { guest: Guest }> {
    const sandbox = await startSandbox(options);
    sandboxes.push(sandbox);
    if (options.Image === undefined) installApplets(sandbox.container);
    return { ...sandbox, guest: await sandbox.open() };
  }

  guestConformance(openDockerTarget);

  describe('the start of an agent', () => {
    const parentOfShell = ['sh', '-c', 'grep ^PPid: /proc/$PPID/status | tr -dc 0-9'];

    test('is done by process 1, without the engine', async () => {
      const { guest, container } = await start();
      expect((await run(guest, parentOfShell)).out).toBe('1');
      const { ExecIDs } = (await container.inspect()) as { ExecIDs?: string[] | null };
      expect(ExecIDs ?? []).toEqual([]);
    });

    test('is done by the engine where process 1 does not answer', async () => {
      const earlier = await start({ Cmd: [] });
      expect((await run(earlier.guest, parentOfShell)).out).toBe('0');
      const remote = await start({ byEngine: true });
      expect((await run(remote.guest, parentOfShell)).out).toBe('0');
    });

    test('is not asked of an engine that would wait at a pipe', async () => {
      const { guest, container } = await start({ User: '0' });
      await sh(guest, 'rm -f /etc/passwd; mkfifo /etc/passwd');
      const guests = new DockerGuests(docker, undefined);
      await expect(guests.open(container.id)).rejects.toMatchObject({ code: 'command_not_started' });
      guests.close();
    });

    test('is repeated after the agent was killed', async () => {
      const sandbox = await start();
      const { guest } = sandbox;
      const ended = new Promise((resolve) => guest.gone.addEventListener('abort', resolve, { once: true }));
      await run(guest, ['sh', '-c', 'kill -9 $PPID']).catch(() => undefined);
      await ended;
      expect((await run(await sandbox.open(), parentOfShell)).out).toBe('1');
    });

    describeImage('by a program in Node', () => {
      prepareImages(makeBases);

      test('is refused to a process of the sandbox', async () => {
        const sandbox = await start({ Image: NODE_BASE });
        const script = `
          const socket = require('node:net').connect('\\0sandkeep-agent');
          socket.on('connect', () => socket.write('x'));
          let read = 0;
          socket.on('data', (chunk) => (read += chunk.length)).on('error', () => undefined);
          socket.on('close', () => console.log('closed after', read));
        `;
        for (let attempt = 0; attempt < 3; attempt += 1) {
          const { out } = await run(sandbox.guest, ['node', '-e', script]);
          expect(out.trim()).toBe('closed after 0');
        }
        expect((await run(await sandbox.open(), ['node', '-p', '1 + 1'])).out.trim()).toBe('2');
        // Nor can it keep process 1 from its other work by connecting without end.
        const flood = `
          const { connect } = require('node:net');
          const again = () => connect('\\0sandkeep-agent').on('error', () => undefined).on('close', again);
          for (let i = 0; i < 64; i += 1) again();
          console.log('begun');
        `;
        const { container, guest } = sandbox;
        const flooding = new TestCommand(guest, ['node', '-e', flood]);
        await until(
          async () => flooding.calls,
          (calls) => calls.includes('stdout'),
        );
        await container.stop({ t: 300 });
        // Not killed by the engine.
        expect((await container.inspect()).State.ExitCode).toBe(0);
      });
    });
  });

  describe('users', () => {
    const PASSWD = [
      'root:x:0:0:root:/root:/bin/sh',
      'app:x:1000:1000::/srv/app:/bin/sh',
      'a line that is no user',
      'homeless:x:1001:1001',
      'last:x:1002:1000::/last:/bin/sh',
    ];
    const GROUP = ['root:x:0:', 'app:x:1000:', 'wheel:x:10:root,app', 'disk:x:6:app,last', 'docker:x:999:'];
    const WITH_USERS = 'sandkeep-test:users';
    const describeUser = 'echo $(id -u):$(id -g) $(id -G) $HOME';

    beforeAll(async () => {
      const { guest, container } = await start();
      const files = guest.files();
      await writeAll(files, '/etc/passwd', PASSWD.join('\n'));
      await writeAll(files, '/etc/group', GROUP.join('\n'));
      await container.commit({ repo: 'sandkeep-test', tag: 'users' });
    });

    test('are found by name and number, with their groups and their home', async () => {
      const { guest } = await start({ Image: WITH_USERS });
      const as = async (user: string) => {
        const { out, failure } = await run(guest, ['sh', '-c', describeUser], { user });
        return failure ? `${failure.kind} ${failure.errnoName}` : out.trim();
      };
      expect(await as('app')).toBe('1000:1000 1000 6 10 /srv/app');
      expect(await as('1000')).toBe('1000:1000 1000 6 10 /srv/app');
      expect(await as('last')).toBe('1002:1000 1000 6 /last');
      expect(await as('homeless')).toBe('1001:1001 1001 /');
      expect(await as('app:docker')).toBe('1000:999 999 /srv/app');
      expect(await as('app:10')).toBe('1000:10 10 /srv/app');
      expect(await as('1000:12345')).toBe('1000:12345 12345 /srv/app');
      expect(await as('4242')).toBe('4242:0 0 /');
      expect(await as('4242:4243')).toBe('4242:4243 4243 /');
      for (const unknown of ['nobody-knows', 'app:nobody-knows', '4294967295', '99999999999', '-1', ':']) {
        expect(await as(unknown), unknown).toBe('user_setup_failed ENOENT');
      }
    });

    test('commands run as the user of the sandbox by default', async () => {
      for (const [User, wanted] of [
        ['', '0:0 0 10 /root'],
        ['app', '1000:1000 1000 6 10 /srv/app'],
        ['1001:6', '1001:6 6 /'],
      ] as const) {
        const sandbox = await start({ Image: WITH_USERS, User });
        expect(await sh(sandbox.guest, describeUser)).toBe(wanted);
      }
    });

    test('exist in an image without the list of users', async () => {
      const { guest } = await start();
      expect(await errorOf(guest.files().stat('/etc/passwd', { follow: true }))).toBe('ENOENT');
      expect(await sh(guest, describeUser, { user: 'root' })).toBe('0:0 0 /root');
      expect(await sh(guest, describeUser, { user: '5:6' })).toBe('5:6 6 /');
      expect((await run(guest, ['true'], { user: 'app' })).failure?.kind).toBe('user_setup_failed');
    });

    test.each(['mkfifo /etc/passwd', 'ln -s /dev/zero /etc/passwd', 'yes >/etc/passwd & sleep 0.5; kill $!'])(
      'are looked up without harm after "%s"',
      async (script) => {
        const { guest } = await start();
        await sh(guest, script);
        expect((await run(guest, ['true'], { user: 'app' })).failure?.kind).toBe('user_setup_failed');
        expect(await sh(guest, 'echo on', { user: '1000' })).toBe('on');
      },
    );
  });

  describe('confinement', () => {
    const CONFINEMENT = /^(Cap(Inh|Prm|Eff|Bnd|Amb)|NoNewPrivs|Seccomp(_filters)?|Uid|Gid|Groups):.*$/gm;
    const NAMESPACES =
      'cat /proc/self/cgroup; for n in cgroup ipc mnt net pid uts user; do readlink /proc/$PID/ns/$n; done';

    test.each<[string, SandboxOptions]>([
      ['root', {}],
      ['root without capabilities', { capabilities: [] }],
      ['a user', { User: '1000:1000' }],
      ['a user without capabilities', { capabilities: [], User: '1000:1000' }],
    ])('of a command is that of the sandbox of %s', async (_name, options) => {
      // As the command of the sandbox, not as process 1 of the test.
      const { guest } = await start({
        ...options,
        Cmd: [
          '--',
          'sh',
          '-c',
          'until cat /proc/self/status 2>/dev/null >/tmp/status; do sleep 0.1; done; sleep 1000',
        ],
      });
      const own = async () => (await sh(guest, 'cat /proc/self/status')).match(CONFINEMENT);
      const main = await until(
        async () => (await run(guest, ['cat', '/tmp/status'])).out.match(CONFINEMENT),
        (found) => found !== null && found.length > 9,
      );
      expect(await own()).toEqual(main);
      expect(main).toContain('NoNewPrivs:\t1');
      const where = (pid: string) => run(guest, ['sh', '-c', NAMESPACES], { env: [`PID=${pid}`] });
      const [mine, first] = [await where('self'), await where('1')];
      expect(mine.out.split('\n').length).toBeGreaterThan(7);
      expect(mine.out).toBe(first.out);
    });

    test('without the capability to change it, the user stays', async () => {
      const { guest } = await start({ capabilities: [], User: '1000:1000' });
      expect(await sh(guest, 'id -u')).toBe('1000');
      expect(await sh(guest, 'id -u', { user: '1000:1000' })).toBe('1000');
      for (const other of ['0', 'root', '1001', '1000:1001']) {
        const { failure } = await run(guest, ['true'], { user: other });
        expect(failure, other).toMatchObject({ kind: 'user_setup_failed', errnoName: 'EPERM' });
      }
      const files = guest.files();
      expect(await errorOf(files.open('/etc/own', WRITE))).toBe('EACCES');
      await writeAll(files, '/tmp/own', 'mine');
      expect(await files.stat('/tmp/own', { follow: true })).toMatchObject({ uid: 1000, gid: 1000 });
      const terminal = { rows: 10, cols: 20 };
      expect((await run(guest, ['stty', 'size'], { terminal })).out).toBe('10 20\r\n');
    });

    test('no path leads out of the sandbox', async () => {
      const { guest, container } = await start();
      const files = guest.files();
      const name = container.id.slice(0, 12);
      await files.symlink(`${'../'.repeat(40)}etc/hostname`, '/tmp/up');
      await files.symlink('/etc/hostname', '/tmp/absolute');
      for (const path of ['/etc/hostname', `${'../'.repeat(40)}etc/hostname`, '/tmp/up', '/tmp/absolute']) {
        expect((await readAll(files, path)).toString().trim(), path).toBe(name);
      }
      expect(await files.realPath('/tmp/../../../../etc')).toBe('/etc');
    });
  });

  test('needs nothing of the image', async () => {
    const root = mkdtempSync(join(tmpdir(), 'sandkeep-image-'));
    cpSync('/bin/busybox', join(root, 'busybox'));
    importImage(root, SCRATCH);
    rmSync(root, { recursive: true });
    const { guest } = await start({ Image: SCRATCH });
    const ended = await run(guest, ['/busybox', 'echo', 'one program']);
    expect([ended.out, ended.code]).toEqual(['one program\n', 0]);
    expect((await run(guest, ['busybox'])).failure?.kind).toBe('not_found');
    const files = guest.files();
    await writeAll(files, '/new/file', 'x').catch(() => undefined);
    await files.mkdir('/new', null);
    await writeAll(files, '/new/file', 'content');
    await files.copy('/new/file', '/new/copy');
    expect((await readAll(files, '/new/copy')).toString()).toBe('content');
    const terminal = { rows: 3, cols: 4 };
    expect((await run(guest, ['/busybox', 'stty', 'size'], { terminal })).out).toBe('3 4\r\n');
  });

  describe('limits of the sandbox', () => {
    test('on processes refuse commands, and the agent goes on', async () => {
      const { guest } = await start({ HostConfig: { PidsLimit: 24 } });
      const commands = Array.from({ length: 40 }, () => new TestCommand(guest, ['sleep', '1000']));
      await until(
        () => Promise.resolve(commands),
        (all) => all.every(({ calls }) => calls.length > 0),
      );
      const refused = commands.filter(({ failure }) => failure);
      expect(refused.length).toBeGreaterThan(10);
      expect(refused[0]!.failure).toMatchObject({ kind: 'resource_limit', errnoName: 'EAGAIN' });
      expect(await errorOf(guest.files().copy('/bin/busybox', '/tmp/copy'))).toBe('EAGAIN');
      for (const { command } of commands) command.close();
      await Promise.all(commands.map(({ over }) => over));
      expect(await sh(guest, 'echo well')).toBe('well');
    });

    test('on descriptors refuse commands, handles and connections', async () => {
      const { guest } = await start({ HostConfig: { Ulimits: [{ Name: 'nofile', Soft: 32, Hard: 32 }] } });
      const commands = Array.from({ length: 20 }, () => new TestCommand(guest, ['sleep', '1000']));
      await until(
        () => Promise.resolve(commands),
        (all) => all.every(({ calls }) => calls.length > 0),
      );
      const refused = commands.find(({ failure }) => failure);
      expect(refused!.failure).toMatchObject({ kind: 'resource_limit', errnoName: 'EMFILE' });
      const files = guest.files();
      const opened = await Promise.all(
        Array.from({ length: 40 }, () => errorOf(files.open('/bin/busybox', READ))),
      );
      expect(opened).toContain('EMFILE');
      const connection = new TestConnection(guest, '127.0.0.1', 1);
      await connection.saw('closed');
      expect(connection.closed).toEqual({ failure: 'Too many open files' });
      for (const { command } of commands) command.close();
      await Promise.all(commands.map(({ over }) => over));
      files.end();
      expect(await sh(guest, 'echo well')).toBe('well');
    });

    test('on handles are for each caller alone', async () => {
      const { guest } = await start();
      const [greedy, other] = [guest.files(), guest.files()];
      const opened = await Promise.all(
        Array.from({ length: 1_100 }, () => errorOf(greedy.open('/bin/busybox', READ))),
      );
      expect(opened.filter((error) => error === 'EMFILE')).toHaveLength(76);
      expect((await readAll(other, '/bin/busybox')).length).toBeGreaterThan(100_000);
      greedy.end();
      await Promise.all(Array.from({ length: 1_000 }, () => other.open('/bin/busybox', READ)));
    });

    test('on the size of files and disks are errors', async () => {
      const { guest } = await start({
        HostConfig: { Ulimits: [{ Name: 'fsize', Soft: 1e6, Hard: 1e6 }], Tmpfs: { '/small': 'size=100k' } },
      });
      const files = guest.files();
      expect(await errorOf(writeAll(files, '/tmp/large', Buffer.alloc(1_500_000)))).toBe('EFBIG');
      expect(await errorOf(writeAll(files, '/small/large', Buffer.alloc(500_000)))).toBe('ENOSPC');
      expect(await errorOf(files.copy('/bin/busybox', '/small/copy'))).toBe('ENOSPC');
      expect(await sh(guest, 'echo well')).toBe('well');
    });
  });

  test('a connection by name asks the files and the name server of the sandbox', async () => {
    const { guest } = await start();
    const files = guest.files();
    await writeAll(files, '/etc/hosts', '127.0.0.1 listed.test\n');
    await writeAll(files, '/etc/resolv.conf', 'search internal.test\nnameserver 127.0.0.1\n');
    await writeAll(files, '/tmp/name-server', NAME_SERVER);
    const names = new TestCommand(guest, ['nc', '-ll', '-p', '53', '-e', 'sh', '/tmp/name-server']);
    await connectSoon(guest, 53).then(({ connection }) => connection.close());
    for (const host of ['listed.test', 'asked', 'asked.internal.test', 'localhost']) {
      const server = new TestCommand(guest, ['nc', '-l', '-p', '7007', '-e', 'echo', 'reached']);
      // Neither the server may listen yet, nor the shell that answers for names be in time.
      const text = await until(
        () => greetingOf(guest, host),
        (greeting) => !greeting.startsWith('closed: '),
      );
      expect(text, host).toBe('reached\n');
      await server.over;
    }
    names.command.close();
    await names.over;
    expect(await greetingOf(guest, 'asked')).toContain('the name servers of the sandbox do not answer');
  });

  /** The bytes that a server sends first, or the failure of the connection. */
  function greetingOf(guest: Guest, host: string): Promise<string> {
    return new Promise((resolve) => {
      const connection = new HostConnection(guest, host, 7007, {
        connected: () => undefined,
        data: (data) => {
          resolve(data.toString());
          connection.close();
        },
        ended: () => undefined,
        closed: (failure) => resolve(`closed: ${failure}`),
      });
    });
  }

  describe('the agent', () => {
    const agents =
      'for s in /proc/[0-9]*/stat; do read -r p n r <$s && [ "$n" = "(agent)" ] && echo $p; done; true';

    async function agentOf(guest: Guest): Promise<string> {
      return sh(guest, agents);
    }

    test('is replaced when the sandbox kills it, and its commands end', async () => {
      const sandbox = await start();
      const { guest } = sandbox;
      const command = new TestCommand(guest, ['sleep', '12345']);
      const reading = errorOf(guest.files().removeDir('/proc/none', { recursive: true }));
      expect(await reading).toBe('ENOENT');
      void run(guest, ['sh', '-c', `kill -9 ${await agentOf(guest)}`]);
      await command.over;
      expect(command.failure?.message).toContain('stopped');
      expect(guest.gone.aborted).toBe(true);
      const fresh = await sandbox.open();
      expect(fresh).not.toBe(guest);
      await until(
        () => isAlive(fresh, `${command.pid}`),
        (alive) => !alive,
      );
      expect(await errorOf(guest.files().stat('/', { follow: true }))).toContain('stopped');
    });

    test.each(['0', '1000'])('is closed to the other processes of a sandbox of the user %s', async (User) => {
      const sandbox = await start({ User });
      const { guest } = sandbox;
      const files = guest.files();
      await writeAll(files, '/tmp/own', 'text');
      // Its own descriptors stay open to the agent, which changes files by them.
      await files.setStat('/tmp/own', { mode: 0o600, size: 2n }, { follow: true });
      const reached = await sh(
        guest,
        `for file in fd/0 fd/1 fd/2 mem environ; do
           for pid in $(${agents}); do
             { head -c 0 /proc/$pid/$file || echo forged > /proc/$pid/$file; } 2>/dev/null && echo $file
           done
         done; true`,
      );
      expect(reached).toBe('');
      expect(guest.gone.aborted).toBe(false);
      // A program of a command is open as usual.
      expect(await sh(guest, 'head -c 0 /proc/self/environ && echo open')).toBe('open');
    });

    test('is replaced when the sandbox stops it', async () => {
      const sandbox = await start();
      const { guest } = sandbox;
      const files = guest.files();
      const command = new TestCommand(guest, ['sh', '-c', `kill -STOP ${await agentOf(guest)}; sleep 1000`]);
      // The first ones may be answered before the signal arrives.
      const answer = () => errorOf(files.removeDir('/none', { recursive: true }));
      expect(await until(answer, (error) => error !== 'ENOENT')).toContain('stopped');
      await command.over;
      expect(command.failure?.kind).toBe('other');
      const fresh = await sandbox.open();
      expect(await sh(fresh, 'echo fresh')).toBe('fresh');
    });

    test('ends with its commands when the service is killed', async () => {
      const { container, guest } = await start();
      const holder = spawn(process.execPath, [HOLDER, SOCKET, container.id], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      await once(holder.stdout, 'data');
      const count = async () => {
        const { Processes } = (await container.top({ ps_args: '-eo pid,args' })) as { Processes: string[][] };
        const args = Processes.map((row) => row.join(' '));
        return {
          agents: args.filter((line) => line.endsWith('/agent')).length,
          commands: args.filter((line) => line.includes('54321')).length,
        };
      };
      await until(count, ({ agents: all, commands }) => all === 2 && commands === 2);
      holder.kill('SIGKILL');
      await once(holder, 'exit');
      await until(count, ({ agents: left, commands }) => left === 1 && commands === 0);
      expect(await sh(guest, 'echo other')).toBe('other');
    });
  });
});
