import { execFileSync } from 'node:child_process';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statfsSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { placesOf } from '../../src/engines/microvm/places.js';
import { readRecord } from '../../src/engines/microvm/read-record.js';
import { isAlive } from '../../src/engines/microvm/processes.js';
import type { Client } from '../support/client.js';
import { describeMicrovm } from '../support/microvm/needs.js';
import { destroyAll, IMAGE, makeMicrovmDirectory, onMicrovm, shIn } from '../support/microvm/service.js';
import { until, untilStatus } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';

const running = { start: true, wait_for: 'running', wait_timeout: 120 };
const MIB = 1024 * 1024;
const request = (name: string, mounts: object[], more: object = {}) => ({
  name,
  image: { type: 'oci', reference: IMAGE },
  pull_policy: 'never',
  resources: { vcpus: 1, memory_mib: 192 },
  network: { enabled: false },
  mounts,
  ...more,
});

/** A boot takes seconds here, so that few sandboxes have many assertions. */
describeMicrovm('volumes of virtual machines', () => {
  let dataDir: string;
  let service: TestService;
  let client: Client;
  let writer: string;
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

  const places = (id: string) => placesOf(join(dataDir, 'microvm'), id);
  const make = async (name: string, more: object = {}): Promise<string> => {
    const { body, text } = await client.post('/v1/volumes', { name, ...more });
    expect(body.id, text).toBeTypeOf('string');
    return body.id;
  };
  const directoryOf = async (volumeId: string) => service.ctx.volumes.ensure(client.org.id, volumeId);
  const hostVolume = async (): Promise<string> => {
    const { body } = await client.get('/v1/volumes');
    return directoryOf(body.find(({ kind }: { kind: string }) => kind === 'host').id);
  };
  const create = async (name: string, mounts: object[], more: object = {}): Promise<string> => {
    const { body } = await client.post('/v1/sandboxes', request(name, mounts, more), running);
    expect(body.status, JSON.stringify(body)).toBe('running');
    return body.id;
  };
  const refused = async (name: string, mounts: object[], more: object = {}) => {
    const { body } = await client.post('/v1/sandboxes', request(name, mounts, more), running);
    return body.error ?? { message: body.last_failure_message };
  };
  const inside = async (id: string, ...commands: string[]) => shIn(service, id, commands.join('; '));
  /** The file servers, and the processes that each has started. */
  const serversOf = async (id: string) => {
    const { supervisor, monitor } = (await readRecord(places(id)))!;
    return childrenOf(supervisor.pid).filter((pid) => pid !== monitor!.pid);
  };

  test('have the files, owners and modes that sandboxes give them, within their flags', async () => {
    const dataId = await make('data');
    const [data, host] = [await directoryOf(dataId), await hostVolume()];
    mkdirSync(join(host, 'shared/below'), { recursive: true });
    writeFileSync(join(host, 'beside'), 'not shared\n');
    writeFileSync(join(data, 'script'), '#!/bin/sh\necho ran\n', { mode: 0o755 });
    const id = (writer = await create('writer', [
      { type: 'named', name: 'data', guest: '/data' },
      {
        type: 'named',
        name: 'data',
        guest: '/flags',
        options: { readonly: true, noexec: true, nosuid: true, nodev: true },
        stat_virtualization: 'relaxed',
        host_permissions: 'mirror',
      },
      { type: 'bind', host: '/shared', guest: '/bound', stat_virtualization: 'off' },
    ]));
    expect(
      await inside(
        id,
        'cd /data; ./script; cp script set; chown 1000:2000 set; chmod 4751 set; ln -s /etc/passwd link',
        'ln set hard; mkfifo pipe; mkdir folder; chmod 1770 folder; stat -c "%u %g %a" set folder',
        'touch /bound/file; chown 1000 /bound/file; ls /bound/.. | grep -c beside || true',
      ),
    ).toBe('ran\n1000 2000 4751\n0 0 1770\n0');
    expect(await inside(id, 'grep -E " /(data|flags|bound) " /proc/mounts | cut -d" " -f2-4')).toBe(
      [
        '/data virtiofs rw,relatime',
        '/flags virtiofs ro,nosuid,nodev,noexec,relatime',
        '/bound virtiofs rw,relatime',
      ].join('\n'),
    );
    const facts = (path: string) => {
      const { uid, gid, mode, nlink } = lstatSync(path);
      return [uid, gid, mode & 0o7777, nlink];
    };
    expect(facts(join(data, 'set'))).toEqual([1000, 2000, 0o4751, 2]);
    expect(facts(join(data, 'folder'))).toEqual([0, 0, 0o1770, 2]);
    expect(facts(join(host, 'shared/file'))[0]).toBe(1000);
    // A link of the sandbox stays a text, and no device of the machine can be named.
    expect(readlinkSync(join(data, 'link'))).toBe('/etc/passwd');
    expect(await inside(id, 'mknod /data/disk b 8 0 2>&1 || true', 'cat /data/link | wc -l')).toMatch(
      /not permitted\n2$/,
    );
    expect(existsSync(join(data, 'disk'))).toBe(false);
    // Root of the sandbox mounts without the flag. The machine refuses the write then.
    expect(
      await inside(
        id,
        'touch /flags/new 2>&1 || true',
        'mount -o remount,rw,exec /flags',
        '/flags/script',
        'touch /flags/new 2>&1 || true; rm /flags/script 2>&1 || true; echo x 2>&1 >> /flags/script || true',
        'chmod 777 /flags/set 2>&1 || true; ls /data',
      ),
    ).toMatch(/^(touch: .*Read-only.*\n)ran\n(.*Read-only.*\n){4}folder\nhard\nlink\npipe\nscript\nset$/);

    // The files of the service are those of the sandbox.
    const at = `/v1/volumes/${dataId}`;
    expect((await client.get(`${at}/files/content`, { path: '/set' })).text).toContain('echo ran');
    const measured = await service.ctx.volumes.measure(client.org.id, dataId, AbortSignal.timeout(60_000));
    expect(measured).toBeGreaterThan(0);
    expect((await client.delete(at)).status).toBe(409);

    // A pause would lose what the file servers know.
    const { status, body } = await client.post(`/v1/sandboxes/${id}/pause`, {});
    expect([status, body.error.code]).toEqual([409, 'invalid_state_transition']);
    expect(body.error.message).toContain('mounts volumes');
  });

  test('have files that the guest has removed, and holds open', async () => {
    const { dev } = statSync(dataDir);
    const removed = async () => {
      const { own, onDisks } = (await service.runtime.removedBytes!(writer, AbortSignal.timeout(60_000)))!;
      return [own, onDisks.get(dev) ?? 0];
    };
    expect(await removed()).toEqual([0, 0]);
    const holds =
      'echo $$ > /tmp/holder; exec 3> /data/gone; rm /data/gone; head -c 8388608 /dev/urandom >&3; sync; exec sleep 10000';
    await inside(writer, `setsid sh -c '${holds}' < /dev/null > /dev/null 2>&1 &`);
    await until(removed, ([own, onDisk]) => own === 0 && onDisk! >= 8 * MIB);
    expect(await inside(writer, `ls /data | grep gone || true; kill $(cat /tmp/holder)`)).toBe('');
    await until(removed, ([, onDisk]) => onDisk === 0);
  });

  test('show a single file, and nothing beside it', async () => {
    const host = await hostVolume();
    const file = join(host, 'settings');
    writeFileSync(file, 'first\n', { mode: 0o755 });
    writeFileSync(join(host, 'beside-settings'), 'not shared\n');
    const id = await create('single', [
      { type: 'bind', host: '/settings', guest: '/etc/made/settings' },
      {
        type: 'bind',
        host: '/settings',
        guest: '/flags-file',
        options: { readonly: true, noexec: true, nosuid: true, nodev: true },
      },
    ]);
    expect(
      await inside(
        id,
        'cat /etc/made/settings /flags-file; echo second >> /etc/made/settings; cat /etc/made/settings',
        'chown 1000:2000 /etc/made/settings; ls /etc/made; ls /.sandkeep | grep share || true',
        '(echo third >> /flags-file) 2>&1 || true',
      ),
    ).toMatch(/^first\nfirst\nfirst\nsecond\nsettings\n.*Read-only/);
    // Each mount has a cache of its own.
    await until(
      async () => inside(id, 'cat /flags-file'),
      (text) => text === 'first\nsecond',
    );
    expect(await inside(id, 'grep -E " virtiofs " /proc/mounts | cut -d" " -f2-4')).toBe(
      [
        '/etc/made/settings virtiofs rw,relatime',
        '/flags-file virtiofs ro,nosuid,nodev,noexec,relatime',
      ].join('\n'),
    );
    const { uid, gid } = lstatSync(file);
    expect([uid, gid, readFileSync(file, 'utf8')]).toEqual([1000, 2000, 'first\nsecond\n']);
    // Root of the sandbox sees all that the file server serves.
    expect(
      await inside(
        id,
        'mkdir /again /again-flags; mount -t virtiofs volume0 /again; mount -t virtiofs volume1 /again-flags',
        'ls -A /again /again-flags; cd /again; (touch new; rm file; mv file other) 2>&1 || true',
        '(echo third >> /again-flags/file) 2>&1 || true; cat file',
      ),
    ).toMatch(/^\/again:\nfile\n\n\/again-flags:\nfile\n(.*(Read-only|busy).*\n){4}first\nsecond$/);
    expect(readdirSync(host).filter((name) => name.includes('settings'))).toHaveLength(2);
    expect(readFileSync(file, 'utf8')).toBe('first\nsecond\n');
  });

  test('are served in a jail that has one directory, and ends with the machine', async () => {
    const id = writer;
    const reader = await create('reader', [{ type: 'named', name: 'data', guest: '/data' }]);
    // Both see what either writes.
    await inside(id, 'echo from the writer > /data/message');
    expect(await inside(reader, 'cat /data/message; echo answer > /data/answer')).toBe('from the writer');
    expect(await inside(id, 'cat /data/answer')).toBe('answer');

    const servers = await serversOf(id);
    expect(servers).toHaveLength(3);
    for (const outer of servers) {
      const [pid] = childrenOf(outer);
      const read = (name: string) => readFileSync(`/proc/${pid}/${name}`, 'utf8');
      const status = read('status');
      expect(status).toMatch(/^NoNewPrivs:\t1$/m);
      expect(status).toMatch(/^Seccomp:\t2$/m);
      expect(status).toMatch(/^NSpid:(\t\d+){3}$/m);
      expect(read('uid_map').trim().split(/\s+/)).toEqual(['0', '0', '4294967295']);
      expect(read('limits')).toMatch(/^Max core file size +1 /m);
      expect(Number(/^Max open files +(\d+)/m.exec(read('limits'))![1])).toBeLessThanOrEqual(131_072);
      expect(read('cgroup')).toContain(id);
      expect(read('oom_score_adj').trim()).toBe('900');
      for (const kind of ['user', 'mnt', 'net', 'ipc', 'uts', 'pid'])
        expect(readlinkSync(`/proc/${pid}/ns/${kind}`), kind).not.toBe(readlinkSync(`/proc/self/ns/${kind}`));
      // The directory is the whole file system, and no program can be run there.
      const mounts = read('mountinfo').trim().split('\n');
      const root = mounts.find((line) => line.split(' ')[4] === '/');
      expect(root).toMatch(/nosuid,nodev,noexec/);
      expect(readdirSync(`/proc/${pid}/root`)).not.toContain('etc');
    }
    const roots = await Promise.all(
      servers.map(async (outer) =>
        readdirSync(`/proc/${childrenOf(outer)[0]}/root`)
          .toSorted()
          .at(-1),
      ),
    );
    expect(new Set(roots)).toEqual(new Set(['file', 'set']));

    // Without the file server a sandbox would wait for ever.
    process.kill((await serversOf(reader))[0]!, 'SIGKILL');
    const { body: ended } = await untilStatus(client, reader, 'failed');
    expect(ended.stop_reason).not.toBe('requested');
    expect(readFileSync(join(places(reader).run, 'console'), 'utf8')).toContain('file server of a volume');
    expect(await inside(id, 'cat /data/answer')).toBe('answer');

    // The supervisor takes its processes with it.
    const all = servers.flatMap((pid) => [pid, ...childrenOf(pid)]);
    process.kill((await readRecord(places(id)))!.supervisor.pid, 'SIGKILL');
    await until(
      async () => Promise.resolve(all.filter((pid) => isThere(pid))),
      (left) => left.length === 0,
    );
    await untilStatus(client, id, 'failed');
    expect(isAlive((await readRecord(places(id)))!)).toBe(false);
    await until(
      async () => Promise.resolve(readdirSync(places(id).run).filter((name) => name.includes('share'))),
      (left) => left.length === 0,
    );
  });

  test('are refused by their field, where a sandbox could not have them', async () => {
    const host = await hostVolume();
    writeFileSync(join(host, 'one-file'), 'x');
    symlinkSync('/etc', join(host, 'etc'));
    mkdirSync(join(host, 'disks'));
    writeFileSync(join(host, 'disks/raw'), Buffer.alloc(MIB));
    const bind = (path: string, more: object = {}) => ({ type: 'bind', host: path, guest: '/m', ...more });
    const quota = await refused('quota', [bind('/shared', { quota_mib: 5 })]);
    expect([quota.code, quota.details.field]).toEqual(['invalid_sandbox_config', 'mounts[0].quota_mib']);
    const idle = await refused('idle', [bind('/shared')], {
      lifecycle: { on_idle: 'pause', idle_timeout_secs: 60 },
    });
    expect([idle.code, idle.details.field]).toEqual(['invalid_sandbox_config', 'lifecycle.on_idle']);
    const image = { type: 'disk_image', host: '/disks/raw', guest: '/d', format: 'raw' };
    const cases: [object[], string][] = [
      [[bind('/one-file', { guest: '/tmp' })], 'mount /tmp: '],
      [[bind('/disks/raw', { guest: '/f' }), image], 'another mount writes to it or its folder'],
      [[bind('/etc')], 'mounts[0].host cannot be mounted: it is a symbolic link, which is not followed'],
      [[bind('/etc/ssl')], 'is a symbolic link, which is not followed'],
      [
        [bind('/none')],
        'mounts[0].host cannot be mounted: "none" does not exist: put it into the host volume',
      ],
      [[bind('/disks'), image], 'another mount writes to it or its folder'],
      [[bind('/'), image], 'another mount writes to it or its folder'],
    ];
    for (const [index, [mounts, words]] of cases.entries())
      expect((await refused(`refused-${index}`, mounts)).message).toContain(words);
  });

  test('with a cap are full at their cap, and many files are many', async () => {
    const id = await make('small', { capacity_gib: 1 });
    const sandbox = await create('filler', [{ type: 'named', name: 'small', guest: '/small' }]);
    const directory = await directoryOf(id);
    // By the machine, at once: an emulated processor writes slowly.
    const { bavail, bsize } = statfsSync(directory);
    execFileSync('fallocate', ['--length', `${bavail * bsize - 8 * MIB}`, join(directory, 'filler')]);
    expect(await inside(sandbox, 'dd if=/dev/zero of=/small/more bs=1M count=64 2>&1 || true')).toContain(
      'No space left on device',
    );
    expect(await inside(sandbox, 'rm /small/filler; cd /small; seq 2000 | xargs touch; ls | wc -l')).toBe(
      '2001',
    );
    expect(statSync(join(directory, '2000')).uid).toBe(0);

    // A file server without another descriptor says so, and no list of names ends early.
    await inside(sandbox, 'sync; echo 2 > /proc/sys/vm/drop_caches');
    const [inner] = (await serversOf(sandbox)).flatMap(childrenOf);
    execFileSync('prlimit', [`--pid=${inner}`, '--nofile=200:200']);
    expect(await inside(sandbox, 'cd /small; echo * | wc -w; ls -l * 2>&1 >/dev/null | head -1')).toMatch(
      /^2001\nls: .*: (Too many open files|File table overflow|No file descriptors available)/,
    );
  });
});

/** A process that has ended, and that its parent has not reaped, is gone. */
function isThere(pid: number): boolean {
  try {
    return !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}

function childrenOf(pid: number): number[] {
  const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
  return text === '' ? [] : text.split(' ').map(Number);
}
