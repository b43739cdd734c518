import {
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statfsSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { exportsDirectory, placesOf } from '../../src/engines/microvm/places.js';
import type { Client } from '../support/client.js';
import { sh } from '../support/guest.js';
import { describeMicrovm } from '../support/microvm/needs.js';
import { destroyAll, IMAGE, importTestImage, onMicrovm } from '../support/microvm/service.js';
import { until } from '../support/polling.js';
import { exportOf } from '../support/snapshot-archives.js';
import { capture } from '../support/snapshots.js';
import { startTestService, type TestService } from '../support/service.js';
import { mountSmallDisk, onSmallDisk, unmountSmallDisk } from '../support/small-disk.js';

const MIB = 1024 ** 2;
const LEFT_MIB = 20;
const WRITES = `
  head -c ${40 * MIB} /dev/urandom > /dev/shm/all
  cat /dev/shm/all /dev/shm/all > /twice && sync
  echo 3 > /proc/sys/vm/drop_caches
  cat /dev/shm/all /dev/shm/all | cmp - /twice && echo same`;

onSmallDisk(describeMicrovm)('virtual machines on a full disk of the machine', () => {
  const folder = mkdtempSync(join(tmpdir(), 'sandkeep-full-'));
  let root: string;
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    root = mountSmallDisk(folder, 512);
    await importTestImage(root);
    // Without a reserve the service stops nobody for the space that is left.
    service = await startTestService({ ...onMicrovm(root), disk: { pathOf: () => root, reserveMib: 0 } });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
    unmountSmallDisk(root);
    rmSync(folder, { recursive: true, force: true });
  });

  test('stand still until it has room, and lose no write', async () => {
    const { body } = await client.post(
      '/v1/sandboxes',
      {
        name: 'writes',
        image: { type: 'oci', reference: IMAGE },
        pull_policy: 'never',
        resources: { vcpus: 1, memory_mib: 192, disk_size_mib: 256 },
      },
      { start: true, wait_for: 'running', wait_timeout: 120 },
    );
    expect(body.status, JSON.stringify(body)).toBe('running');
    const { bavail, bsize } = statfsSync(root);
    const ballast = join(root, 'ballast');
    writeFileSync(ballast, Buffer.alloc(bavail * bsize - LEFT_MIB * MIB, 1));
    const { guest, release } = await service.runtime.openGuest(body.id);
    const writing = sh(guest, WRITES).finally(release);
    const console = join(placesOf(join(root, 'microvm'), body.id).run, 'console');
    await until(
      async () => Promise.resolve(readFileSync(console, 'latin1')),
      (text) => text.includes('the monitor has stopped the processors'),
    );
    truncateSync(ballast, 0);
    expect(await writing).toBe('same');
  });

  test('an export of more bytes than the disk has is refused, and leaves nothing', async () => {
    const { id } = (await client.get('/v1/sandboxes/by-name/writes')).body;
    expect((await capture(client, id, 'twice'))['error']).toBeNull();
    const { bavail, bsize } = statfsSync(root);
    const ballast = join(root, 'ballast');
    writeFileSync(ballast, Buffer.alloc(bavail * bsize - LEFT_MIB * MIB, 1));
    const { status, bytes } = await exportOf(client, 'by-name/twice');
    expect([status, bytes.toString()]).toEqual([507, expect.stringContaining('storage_full')]);
    expect(readdirSync(exportsDirectory(join(root, 'microvm')))).toEqual([]);
    truncateSync(ballast, 0);
    expect((await exportOf(client, 'by-name/twice')).status).toBe(200);
  });
});
