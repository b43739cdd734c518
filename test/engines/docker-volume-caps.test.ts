import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, existsSync, lstatSync, mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import { operator } from '../../src/audit/events/actor.js';
import { mountsBelow } from '../../src/lib/mount-table.js';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { sleep } from '../../src/lib/sleep.js';
import { setQuotas } from '../../src/quotas/set.js';
import { purgeDueVolumes } from '../../src/volumes/jobs.js';
import { attachedImages } from '../../src/volumes/storage/disks/disk-image.js';
import { explainDiskFailure } from '../../src/volumes/storage/disks/errors.js';
import { runProgram } from '../../src/volumes/storage/disks/program.js';
import { VolumeStore } from '../../src/volumes/storage/store.js';
import type { Client } from '../support/client.js';
import { destroyAll, onDocker } from '../support/docker-service.js';
import { describeDocker, execIn, IMAGE, makeImage } from '../support/docker.js';
import { until } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';
import { codeOf, filesOf } from '../support/volume-files.js';

const running = { start: true, wait_for: 'running', wait_timeout: 120 };
const GIB = 1024 ** 3;

describeDocker('volumes with a cap in containers', () => {
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    makeImage();
    service = await startTestService({
      ...onDocker({ capacity: { vcpus: 100, memoryMib: 100_000 } }),
      settings: { stopGraceMs: 200, volumePurgeAfterMs: 0 },
    });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
    await untilNothingIsLeft(service.volumesDir);
  });

  const sh = (id: string, script: string) => execIn(id, 'sh', '-c', `exec 2>&1; ${script}`);
  const imageOf = (volume: string) => join(service.volumesDir, client.org.id, volume, 'disk.ext4');
  async function start(name: string, volume: string): Promise<any> {
    const body = {
      name,
      image: { type: 'oci', reference: IMAGE },
      pull_policy: 'never',
      mounts: [{ type: 'named', name: volume, guest: '/data' }],
    };
    const { body: sandbox } = await client.post('/v1/sandboxes', body, running);
    return sandbox;
  }
  async function restart(id: string): Promise<void> {
    await client.post(`/v1/sandboxes/${id}/stop`, {}, { wait_for: 'stopped' });
    const { body } = await client.post(`/v1/sandboxes/${id}/start`, {}, { wait_for: 'running' });
    expect(body.status, JSON.stringify(body)).toBe('running');
  }
  const megabytesOf = async (id: string) =>
    Number((await sh(id, 'busybox df -m /data | tail -n 1')).split(/ +/)[1]);

  test('are full at their cap for sandboxes and uploads, give space back, grow, and go with their sandboxes', async () => {
    const { body: volume } = await client.post('/v1/volumes', { name: 'capped', capacity_gib: 1 });
    const files = filesOf(client, volume.id);
    const { id, ...sandbox } = await start('capped', 'capped');
    expect(sandbox.status, JSON.stringify(sandbox)).toBe('running');
    expect(await megabytesOf(id)).toBeLessThan(1024);
    expect(await sh(id, 'busybox fallocate -l 2147483648 /data/large; ls /data')).toMatch(
      /No space left on device/,
    );
    await sh(id, 'rm -f /data/large; dd if=/dev/zero of=/data/kept bs=1M count=64; sync');
    expect(statSync(imageOf(volume.id)).blocks * 512).toBeGreaterThan(64 * 1024 ** 2);
    await sh(id, 'busybox fallocate -l 900000000 /data/most; : > /data/rest; cat /dev/zero > /data/rest');
    const refused = await files.put('more', Buffer.alloc(1024 ** 2));
    expect(codeOf(refused), JSON.stringify(refused.body)).toEqual([507, 'storage_full']);
    expect((await files.get('kept')).headers.get('content-length')).toBe(String(64 * 1024 ** 2));

    await sh(id, 'rm /data/kept /data/most /data/rest; sync');
    await until(
      () => Promise.resolve(statSync(imageOf(volume.id)).blocks * 512),
      (bytes) => bytes < 64 * 1024 ** 2,
    );
    expect(codeOf(await files.put('more', Buffer.alloc(1024 ** 2)))).toEqual([200, undefined]);
    expect(await sh(id, 'busybox stat -c %s /data/more')).toBe(`${1024 ** 2}\n`);
    const kib = await service.ctx.volumes.measure(client.org.id, volume.id, AbortSignal.timeout(60_000));
    expect(kib).toBeGreaterThan(1024);
    expect(kib).toBeLessThan(2048);

    const patch = async (capacity_gib: number | null) =>
      client.patch(`/v1/volumes/${volume.id}`, { capacity_gib });
    expect((await patch(3)).body.capacity_bytes).toBe(3 * GIB);
    expect((await patch(2)).body.error.message).toBe(
      'the volume is a disk of 3 GiB, which cannot shrink: give that or more',
    );
    expect((await patch(null)).body.error.message).toContain('its cap cannot be removed');
    expect((await patch(16_001)).body.error.message).toContain('at most 16000');
    // Without CAP_SYS_RESOURCE the disk grows at a start that finds its loop device free.
    await until(
      async () => {
        await restart(id);
        return megabytesOf(id);
      },
      (megabytes) => megabytes > 2_900,
    );
    expect(await sh(id, 'busybox stat -c %s /data/more')).toBe(`${1024 ** 2}\n`);

    expect(await client.delete(`/v1/volumes/${volume.id}`)).toMatchObject({ status: 409 });
    await client.delete(`/v1/sandboxes/${id}`);
    await until(
      async () => client.get('/v1/sandboxes'),
      ({ body }) => body.data.length === 0,
    );
    expect((await client.delete(`/v1/volumes/${volume.id}`)).status).toBe(200);
    await until(
      async () => {
        await purgeDueVolumes(service.ctx, AbortSignal.timeout(60_000));
        return existsSync(join(service.volumesDir, client.org.id, volume.id));
      },
      (exists) => !exists,
    );
    await until(attachedImages, (images) => !images.some((image) => image.includes(volume.id)));
  });

  test('keep the files that they had as directories, and get no first cap while they are mounted', async () => {
    const { body: volume } = await client.post('/v1/volumes', { name: 'plain' });
    const files = filesOf(client, volume.id);
    await files.put('deep/er/file', 'kept');
    const data = await service.ctx.volumes.ensure(client.org.id, volume.id);
    symlinkSync('/etc/passwd', join(data, 'link'));
    writeFileSync(join(data, 'owned'), 'mine', { mode: 0o640 });
    chownSync(join(data, 'owned'), 1234, 1234);
    writeFileSync(join(data, 'holes'), '');
    truncateSync(join(data, 'holes'), 2 * GIB);

    const { id } = await start('plain', 'plain');
    const refused = await client.patch(`/v1/volumes/${volume.id}`, { capacity_gib: 1 });
    expect(refused.body.error.message).toMatch(/first cap.*plain mount it/);
    await client.delete(`/v1/sandboxes/${id}`);
    expect((await client.patch(`/v1/volumes/${volume.id}`, { capacity_gib: 1 })).status).toBe(200);

    const again = await start('capped-now', 'plain');
    expect(again.status, JSON.stringify(again)).toBe('running');
    expect(await megabytesOf(again.id)).toBeLessThan(1024);
    const script =
      'cat /data/deep/er/file; busybox readlink /data/link; busybox stat -c "%u %a %s" /data/owned /data/holes';
    expect(await sh(again.id, script)).toBe(`kept/etc/passwd\n1234 640 4\n0 644 ${2 * GIB}\n`);
    expect(existsSync(data)).toBe(false);
    expect(await files.text('deep/er/file')).toBe('kept');
    await client.delete(`/v1/sandboxes/${again.id}`);
  });

  test('give the first copy up when their sandbox is stopped', async () => {
    const { body: volume } = await client.post('/v1/volumes', { name: 'copied' });
    await filesOf(client, volume.id).put('file', 'kept');
    await client.patch(`/v1/volumes/${volume.id}`, { capacity_gib: 1 });
    const directory = join(service.volumesDir, client.org.id, volume.id);
    // The start waits for the lock of the disk, as for a copy that takes long.
    const holder = spawn('flock', ['--exclusive', directory, 'sh', '-c', 'echo; exec cat'], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    try {
      await once(holder.stdout, 'data');
      const body = {
        name: 'copied',
        image: { type: 'oci', reference: IMAGE },
        pull_policy: 'never',
        mounts: [{ type: 'named', name: 'copied', guest: '/data' }],
      };
      const { id } = (await client.post('/v1/sandboxes', body, { start: true })).body;
      const waits = () => Promise.resolve(spawnSync('pgrep', ['-f', 'flock --exclusive --wait']).status);
      await until(waits, (status) => status === 0, 30_000);
      const stopped = await client.post(`/v1/sandboxes/${id}/stop`, {}, { wait_for: 'stopped' });
      expect(stopped.body.status, stopped.text).toBe('stopped');
      expect(holder.exitCode).toBe(null);
      await client.delete(`/v1/sandboxes/${id}`);
    } finally {
      holder.stdin.end();
    }
    await client.delete(`/v1/volumes/${volume.id}`);
  });

  test('wait for a cap that their files fit under', async () => {
    const org = await service.newOrg();
    const { body: volume } = await org.post('/v1/volumes', { name: 'large' });
    const data = await service.ctx.volumes.ensure(org.org.id, volume.id);
    // A disk of 1 GiB has 65,536 inodes.
    execFileSync('sh', ['-c', 'seq 65600 | xargs touch'], { cwd: data });
    await org.patch(`/v1/volumes/${volume.id}`, { capacity_gib: 1 });
    const files = filesOf(org, volume.id);
    const refused = await files.put('more', 'more');
    expect(codeOf(refused), JSON.stringify(refused.body)).toEqual([507, 'storage_full']);
    expect(refused.body.error.message).toContain('do not fit under its cap');
    expect((await files.stat('65600')).status).toBe(200);
    await org.patch(`/v1/volumes/${volume.id}`, { capacity_gib: null });
    expect(codeOf(await files.put('more', 'more'))).toEqual([200, undefined]);
    expect(lstatSync(join(service.volumesDir, org.org.id, volume.id, 'data', 'more')).isFile()).toBe(true);
  });

  test('let a start wait while the machine has no loop device', async () => {
    await client.post('/v1/volumes', { name: 'waits', capacity_gib: 1 });
    const full = explainDiskFailure(new Error('mount: /x: failed to setup loop device for /y.'));
    const hold = vi.spyOn(service.ctx.volumes, 'holdToCap').mockRejectedValue(full);
    onTestFinished(() => hold.mockRestore());
    const body = {
      name: 'waits',
      image: { type: 'oci', reference: IMAGE },
      pull_policy: 'never',
      mounts: [{ type: 'named', name: 'waits', guest: '/data' }],
    };
    const { body: made } = await client.post('/v1/sandboxes', body, { start: true });
    const path = `/v1/sandboxes/${made.id}`;
    const waiting = await until(
      async () => client.get(path),
      ({ body: { last_failure_message: message } }) => message?.includes('no loop device left'),
    );
    expect(waiting.body.status).toBe('starting');
    hold.mockRestore();
    await until(
      async () => client.get(path),
      ({ body: { status } }) => status === 'running',
      60_000,
    );
    await client.delete(path);
  });

  test('serve an organization with a storage limit', async () => {
    const org = await service.newOrg();
    await setQuotas(service.ctx.pool, org.org.id, { max_total_storage_gib: 4 }, operator('test'));
    expect((await org.post('/v1/volumes', { name: 'none' })).status).toBe(403);
    const { body: volume } = await org.post('/v1/volumes', { name: 'limited', capacity_gib: 4 });
    const body = {
      name: 'limited',
      image: { type: 'oci', reference: IMAGE },
      pull_policy: 'never',
      mounts: [{ type: 'named', name: 'limited', guest: '/data', options: { readonly: true } }],
    };
    const { body: sandbox } = await org.post('/v1/sandboxes', body, running);
    expect(sandbox.status, JSON.stringify(sandbox)).toBe('running');
    expect(await sh(sandbox.id, 'echo x > /data/x')).toMatch(/Read-only file system/);
    expect(codeOf(await filesOf(org, volume.id).put('x', 'written'))).toEqual([200, undefined]);
    expect(await sh(sandbox.id, 'cat /data/x')).toBe('written');
    await org.delete(`/v1/sandboxes/${sandbox.id}`);
  });
});

describeDocker('the disks of volumes', () => {
  let root: string;
  const [org, volume] = ['00000000-0000-7000-8000-00000000000a', '00000000-0000-7000-8000-00000000000b'];
  const files = Array.from({ length: 40 }, (_, index) => `file-${index}`);
  beforeAll(() => {
    root = mkdtempSync(join(tmpdir(), 'disks-'));
  });
  afterAll(() => rmSync(root, { recursive: true, force: true }));

  async function openStore(): Promise<VolumeStore> {
    const store = new VolumeStore(root);
    await store.prepare();
    store.makesDisks = true;
    return store;
  }

  test('a copy that is given up has ended', async () => {
    const gone = new AbortController();
    const options = { timeoutMs: 600_000, signal: gone.signal };
    const work = runProgram('sh', ['-c', 'echo $$ > "$0"; exec sleep 600', join(root, 'pid')], options);
    const failure = expect(work).rejects.toThrow('SIGKILL');
    const pid = async () => readFile(join(root, 'pid'), 'utf8').catch(() => '');
    const known = await until(pid, (text) => text !== '', 30_000);
    gone.abort();
    await failure;
    expect(() => process.kill(Number(known), 0)).toThrow('ESRCH');
    await expect(runProgram('sleep', ['600'], options)).rejects.toThrow('SIGKILL');
  });

  test('survive a kill at any moment of their making, with their files and one loop device', async () => {
    const first = await openStore();
    const data = await first.ensure(org, volume);
    for (const name of files) writeFileSync(join(data, name), name.repeat(10_000));
    const victim = `
      import { VolumeStore } from '${PACKAGE_ROOT}/dist/src/volumes/storage/store.js';
      const store = new VolumeStore('${root}');
      store.makesDisks = true;
      process.send('ready');
      const cap = Number(process.argv[1]);
      for (;;) {
        await store.holdToCap('${org}', '${volume}', cap);
        await (await store.openIncoming('${org}', '${volume}')).close();
        if (cap > 1) await store.holdToCap('${org}', '${volume}', cap + 1);
      }`;
    for (let round = 0; round < 14; round += 1) {
      const cap = String(round < 7 ? 1 : round);
      const child = spawn(process.execPath, ['--input-type=module', '--eval', victim, cap], {
        stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      });
      await once(child, 'message');
      await sleep((round % 7) * 12);
      child.kill('SIGKILL');
      await once(child, 'close');
      // The next process may be there before the programs of the killed one have ended.
      const store = await openStore();
      if (round % 2 === 0) await store.holdToCap(org, volume, Math.max(1, round));
      for (const name of files) {
        const file = await store.openBeneath(org, volume, name);
        expect(await file.readFile('utf8')).toBe(name.repeat(10_000));
        await file.close();
      }
      await expectAttached(root, 1);
      await store.close();
    }
    const last = await openStore();
    await last.holdToCap(org, volume, 20);
    const { directory, close } = (await last.holdData(org, volume))!;
    const blocks = execFileSync('df', ['--output=size', '-BG', directory], { encoding: 'utf8' });
    expect(blocks).toMatch(/\b20G/);
    await close();
    await last.close();
    await untilNothingIsLeft(root);
    await last.remove(org, volume);
    expect(existsSync(join(root, org, volume))).toBe(false);
  });

  test('have one loop device, however many processes open and close them', async () => {
    const stores = await Promise.all(Array.from({ length: 6 }, openStore));
    await stores[0]!.ensure(org, volume);
    await Promise.all(
      stores.map(async (store, index) => {
        await store.holdToCap(org, volume, 1);
        for (let round = 0; round < 4; round += 1) {
          const incoming = await store.openIncoming(org, volume);
          const path = `${await store.ensure(org, volume)}/${index}-${round}`;
          await incoming.close();
          await store.measure(org, volume, AbortSignal.timeout(60_000));
          mkdirSync(path, { recursive: true });
          await expectAttached(root, 1);
        }
      }),
    );
    for (const store of stores) await store.close();
    await untilNothingIsLeft(root);
    await stores[0]!.remove(org, volume);
  });

  test('are named where they fail', () => {
    const said = (message: string) => {
      const error = explainDiskFailure(new Error(message));
      return [(error as any).kind, error.message];
    };
    expect(said('mount: /x: failed to setup loop device for /y.')).toEqual([
      'no_room',
      expect.stringContaining('no loop device left'),
    ]);
    expect(said('mkfs.ext4: No space left on device')).toEqual([
      'no_room',
      expect.stringContaining('disk of the machine'),
    ]);
    expect(said('mount: /x: wrong fs type, bad option, bad superblock')).toEqual([
      'unavailable',
      expect.not.stringContaining('/x'),
    ]);
  });
});

/** The kernel clears a loop device a moment after the last mount. */
async function untilNothingIsLeft(root: string): Promise<void> {
  await until(
    async () => (await mountsBelow(root)).map(({ point }) => point),
    (points) => points.length === 0,
  );
  await expectAttached(root, 0);
}

async function expectAttached(root: string, most: number): Promise<void> {
  const images = await until(
    async () => (await attachedImages()).filter((image) => image.startsWith(root)),
    (found) => found.length <= most,
  );
  expect(images.length).toBeLessThanOrEqual(most);
}
