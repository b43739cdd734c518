import { execFileSync } from 'node:child_process';
import {
  copyFileSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { UNCHECKED_DISKS } from '../../src/disk/disk-reserve.js';
import { placesOf } from '../../src/engines/microvm/places.js';
import { registryReach } from '../../src/settings.js';
import type { Client } from '../support/client.js';
import { describeMicrovm } from '../support/microvm/needs.js';
import { destroyAll, IMAGE, makeMicrovmDirectory, onMicrovm, shIn } from '../support/microvm/service.js';
import { configOf, remoteImage } from '../support/private-registry.js';
import { credentials, LOCAL, recordedAccess, serve } from '../support/pulled-images.js';
import { untilStatus } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';

const running = { start: true, wait_for: 'running', wait_timeout: 120 };

describeMicrovm('images and disks of the microvm runtime', () => {
  let dataDir: string;
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    dataDir = await makeMicrovmDirectory();
    const reach = registryReach(LOCAL);
    const pulls = { reach, access: recordedAccess(), maxMib: 64, disk: UNCHECKED_DISKS };
    service = await startTestService(onMicrovm(dataDir, { pulls }));
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
    rmSync(dataDir, { recursive: true, force: true });
  });

  const create = async (name: string, more: Record<string, unknown> = {}) => {
    const request = {
      name,
      image: { type: 'oci', reference: IMAGE },
      pull_policy: 'never',
      resources: { vcpus: 1, memory_mib: 192 },
      network: { enabled: false },
    };
    return (await client.post('/v1/sandboxes', { ...request, ...more }, running)).body;
  };
  const inside = async (id: string, script: string) => shIn(service, id, script);
  /** The directory of the volume of the machine. */
  const hostVolume = async () => {
    const { body } = await client.get('/v1/volumes');
    const { id } = body.find(({ kind }: { kind: string }) => kind === 'host');
    return service.ctx.volumes.ensure(client.org.id, id);
  };

  test('an image is pulled with credentials, and named by the digest of its registry', async () => {
    const root = join(dataDir, 'root');
    mkdirSync(join(root, 'bin'), { recursive: true });
    copyFileSync('/bin/busybox', join(root, 'bin/busybox'));
    for (const applet of ['sh', 'cat']) symlinkSync('busybox', join(root, 'bin', applet));
    writeFileSync(join(root, 'pulled'), 'from the registry');
    const layer = execFileSync('tar', ['-c', '-C', root, '.'], { maxBuffer: 64 * 1_024 * 1_024 });
    const image = remoteImage(configOf([layer], { config: { Env: ['PATH=/bin'] } }), [gzipSync(layer)]);
    const registry = await serve(image, { credentials });
    const reference = `${registry.host}/team/app:1`;
    const createOf = async (name: string, more: object) =>
      create(name, { image: { type: 'oci', reference }, pull_policy: 'if_missing', ...more });
    expect(await createOf('denied', {})).not.toMatchObject({ status: 'running' });
    const body = await createOf('pulled', { registry: { mode: 'inline', ...credentials } });
    expect(body.status, JSON.stringify(body)).toBe('running');
    expect(await inside(body.id, 'cat /pulled')).toBe('from the registry');
    expect(body.image_digest).toBe(image.digest);
  });

  test('a second sandbox of an image takes 2 MiB of the disk at most', async () => {
    const used = (id: string) => {
      const { directory } = placesOf(join(dataDir, 'microvm'), id);
      const kib = execFileSync('du', ['-sk', '--exclude=base.erofs', directory], { encoding: 'utf8' });
      return Number(kib.split('\t')[0]);
    };
    const first = await create('first', { resources: { vcpus: 1, memory_mib: 192, disk_size_mib: 20_480 } });
    const second = await create('second', {
      resources: { vcpus: 1, memory_mib: 192, disk_size_mib: 20_480 },
    });
    const bases = [first, second].map(({ id }) => statSync(placesOf(join(dataDir, 'microvm'), id).base).ino);
    expect(bases[0]).toBe(bases[1]);
    expect(await inside(second.id, "df -m / | awk 'END { print ($2 > 18000) }'")).toBe('1');
    expect(used(second.id)).toBeLessThanOrEqual(2_048);
    console.info(`a sandbox of an image that is here takes ${used(second.id)} KiB`);
    for (const { id } of [first, second]) await client.delete(`/v1/sandboxes/${id}`);
  });

  test('disk images of the three formats are mounted from the volume of the machine', async () => {
    const volume = await hostVolume();
    const source = join(dataDir, 'source');
    mkdirSync(source);
    writeFileSync(join(source, 'file'), 'from the machine');
    mkdirSync(join(volume, 'disks'));
    const raw = join(volume, 'disks/disk.raw');
    execFileSync('truncate', ['--size=16M', raw]);
    execFileSync('mke2fs', ['-q', '-t', 'ext4', '-d', source, raw]);
    for (const format of ['qcow2', 'vmdk'])
      execFileSync('qemu-img', ['convert', '-f', 'raw', '-O', format, raw, join(volume, `disk.${format}`)]);
    const mount = (host: string, format: string, guest: string, more: object = {}) => ({
      type: 'disk_image',
      host,
      format,
      guest,
      ...more,
    });
    const { id, status } = await create('disks', {
      mounts: [
        mount('disks/disk.raw', 'raw', '/raw', { fstype: 'ext4' }),
        mount('disk.qcow2', 'qcow2', '/qcow2'),
        mount('disk.vmdk', 'vmdk', '/vmdk', { options: { readonly: true, noexec: true } }),
      ],
    });
    expect(status).toBe('running');
    const facts = await inside(
      id,
      'cat /raw/file /qcow2/file /vmdk/file; echo; echo new > /raw/new; echo new > /qcow2/new; sync; echo no > /vmdk/new; grep -c " /vmdk ext4 ro,.*noexec" /proc/mounts',
    );
    expect(facts).toContain('from the machinefrom the machinefrom the machine\n');
    expect(facts).toMatch(/\n1$/);
    const other = await create('other', { mounts: [mount('disks/disk.raw', 'raw', '/raw')] });
    expect(other.error?.message ?? other.stop_message, JSON.stringify(other)).toContain(
      `mounts[0]: the disk image disks/disk.raw cannot be used: the sandbox ${id} uses it`,
    );
    await client.post(`/v1/sandboxes/${id}/stop`, {}, { wait_for: 'stopped', wait_timeout: 120 });
    const read = (image: string, name: string) =>
      execFileSync('debugfs', ['-R', `cat ${name}`, image], {
        stdio: ['ignore', 'pipe', 'ignore'],
        encoding: 'utf8',
      });
    expect(read(raw, '/new')).toBe('new\n');
    const converted = join(dataDir, 'converted');
    execFileSync('qemu-img', ['convert', '-f', 'qcow2', '-O', 'raw', join(volume, 'disk.qcow2'), converted]);
    expect(read(converted, '/new')).toBe('new\n');
  });

  test('a resume does not write the memory of a replaced disk image to the new one', async () => {
    const volume = await hostVolume();
    const image = join(volume, 'kept.raw');
    execFileSync('truncate', ['--size=16M', image]);
    execFileSync('mke2fs', ['-q', '-t', 'ext4', image]);
    const mount = { type: 'disk_image', host: 'kept.raw', format: 'raw', guest: '/kept', fstype: 'ext4' };
    const { id, status } = await create('pauses', { mounts: [mount] });
    expect(status).toBe('running');
    await inside(id, 'echo old > /kept/file');
    await client.post(`/v1/sandboxes/${id}/pause`, {}, { wait_for: 'paused', wait_timeout: 120 });
    // As an upload does.
    execFileSync('truncate', ['--size=16M', `${image}.new`]);
    execFileSync('mke2fs', ['-q', '-t', 'ext4', `${image}.new`]);
    renameSync(`${image}.new`, image);
    const uploaded = readFileSync(image);
    await client.post(`/v1/sandboxes/${id}/resume`);
    const { body } = await untilStatus(client, id, 'failed');
    expect(body.last_failure_message).toContain('or disk images, and cannot be continued: start it again');
    expect(readFileSync(image).equals(uploaded)).toBe(true);
  });

  test('a disk image that names a file of the machine starts nothing', async () => {
    const volume = await hostVolume();
    execFileSync('qemu-img', [
      'create',
      '-q',
      '-f',
      'qcow2',
      '-b',
      '/etc/passwd',
      '-F',
      'raw',
      join(volume, 'bad.qcow2'),
    ]);
    symlinkSync('/etc/passwd', join(volume, 'link'));
    for (const [host, format, words] of [
      ['bad.qcow2', 'qcow2', 'it names another file, and a disk must be in one file'],
      ['link', 'raw', 'it is no file'],
    ] as const) {
      const body = await create(`bad-${format}`, {
        mounts: [{ type: 'disk_image', host, format, guest: '/d' }],
      });
      expect(body.error?.message ?? body.stop_message, JSON.stringify(body)).toContain(words);
    }
  });
});
