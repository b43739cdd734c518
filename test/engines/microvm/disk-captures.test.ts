import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import type { Run } from '../../../src/engine/runtime.js';
import { layerFiles } from '../../../src/engines/microvm/disks/layers.js';
import { readHeld } from '../../../src/engines/microvm/holdings.js';
import { placesOf, snapshotsDirectory } from '../../../src/engines/microvm/places.js';
import { noteBegun, prepareCopy } from '../../../src/engines/microvm/prepare-copy.js';
import { ImageStore } from '../../../src/engines/microvm/images/image-store.js';
import { VmImages } from '../../../src/engines/microvm/images/vm-images.js';
import { DiskCaptures } from '../../../src/engines/microvm/snapshots/disk-captures.js';
import { SnapshotStore } from '../../../src/engines/microvm/snapshots/snapshot-store.js';
import { newId } from '../../../src/lib/uuid.js';
import { makeFolder } from '../../support/microvm/runs.js';
import { architecture } from '../../support/pulled-images.js';

const SIZE_MIB = 64;
const { signal } = new AbortController();
const image = { env: ['A=b'], entrypoint: [], user: 'ann', workdir: '/srv', stopSignal: null };

/** A sandbox that does not run, with a disk that `make` creates. */
function makeSandbox({
  layers = 0,
  make = (file: string) => qemuImg('create', '-f', 'qcow2', file, `${SIZE_MIB}M`),
}) {
  const directory = makeFolder();
  const sandboxId = newId();
  const places = placesOf(directory, sandboxId);
  mkdirSync(places.directory, { recursive: true });
  const identity = {
    orgId: 'a',
    sandboxId,
    firstRunId: newId(),
    imageDigest: 'sha256:01',
    diskMib: SIZE_MIB,
    image,
  };
  writeFileSync(places.identity, JSON.stringify({ ...identity, layers }));
  writeFileSync(places.base, 'base');
  for (const file of layerFiles(places.directory, layers)) writeFileSync(file, '');
  make(places.disk);
  const images = new VmImages({
    store: new ImageStore(join(directory, 'images')),
    sandboxes: join(directory, 'sandboxes'),
    orgOf: async () => Promise.resolve('a'),
    snapshotBases: async () => Promise.resolve([]),
    architecture,
    pulls: undefined,
  });
  const captures = new DiskCaptures({
    directory,
    images,
    snapshots: new SnapshotStore(snapshotsDirectory(directory)),
  });
  const ids = { orgId: 'a', snapshotId: newId(), sandboxId };
  const stored = () => readdirSync(snapshotsDirectory(directory));
  return { directory, places, captures, ids, stored };
}

function qemuImg(...args: string[]): void {
  execFileSync('qemu-img', args, { stdio: 'ignore' });
}

test('a capture is a read-only copy with the digest of its bytes, and a second call changes nothing', async () => {
  const { directory, places, captures, ids, stored } = makeSandbox({ layers: 2 });
  const before = readFileSync(places.disk);
  const captured = await captures.capture(ids, signal);
  writeFileSync(places.disk, 'changed');
  expect(await captures.capture(ids, signal)).toEqual(captured);
  const layer = join(snapshotsDirectory(directory), ids.snapshotId, 'layer-2.qcow2');
  expect(readFileSync(layer).equals(before)).toBe(true);
  expect(captured.contentDigest).toBe(`sha256:${createHash('sha256').update(before).digest('hex')}`);
  expect(await captures.imageConfig(ids.sandboxId)).toMatchObject({
    env: ['A=b'],
    user: 'ann',
    workdir: '/srv',
  });
  // A killed process left these.
  for (const name of ['.new-1', '.removed-2']) mkdirSync(join(snapshotsDirectory(directory), name));
  // A younger one may be that of another process.
  utimesSync(join(snapshotsDirectory(directory), '.new-1'), 0, 0);
  await captures.sweep();
  expect(stored()).toEqual([ids.snapshotId]);
  expect(await captures.list()).toEqual([{ orgId: 'a', snapshotId: ids.snapshotId }]);
  expect([await captures.remove(ids.snapshotId), await captures.remove(ids.snapshotId), stored()]).toEqual([
    true,
    true,
    [],
  ]);
});

test.each([
  [
    'names another file',
    (file: string) => qemuImg('create', '-f', 'qcow2', '-b', '/etc/passwd', '-F', 'raw', file, '64M'),
  ],
  ['not qcow2', (file: string) => writeFileSync(file, 'no disk'.repeat(100))],
  ['size has changed', (file: string) => qemuImg('create', '-f', 'qcow2', file, '1T')],
])('a disk whose header is hostile is no snapshot: it says "%s"', async (words, make) => {
  const { captures, ids, stored } = makeSandbox({ make });
  await expect(captures.capture(ids, signal)).rejects.toThrow(words);
  expect(stored()).toEqual([]);
});

test('a disk with the most layers is refused, and a sandbox without a disk', async () => {
  const { captures, ids } = makeSandbox({ layers: 64 });
  await expect(captures.capture(ids, signal)).rejects.toThrow(
    'has 64 layers below it, and the engine allows 64',
  );
  const missing = { ...ids, sandboxId: newId() };
  await expect(captures.capture(missing, signal)).rejects.toThrow('has no disk on its engine');
});

test('the disk of a copy is made anew until a run of it has begun, and is kept from then on', async () => {
  const { directory, captures, ids } = makeSandbox({ layers: 1 });
  await captures.capture(ids, signal);
  const parts = { directory, snapshots: new SnapshotStore(snapshotsDirectory(directory)) };
  const run = (more: object = {}) =>
    ({ orgId: 'a', sandboxId: ids.snapshotId, runId: newId(), spec: {}, ...more }) as unknown as Run;
  const places = placesOf(directory, ids.snapshotId);
  const prepare = async (more: object = {}) =>
    prepareCopy(parts, run(more), await readHeld(directory, ids.snapshotId), ids.snapshotId);
  await expect(prepare({ orgId: 'b' })).rejects.toThrow('the engine has no disk of the snapshot');
  await expect(prepare({ spec: { diskMib: 65 } })).rejects.toThrow('has 64 MiB, and cannot be resized');
  const { identity, isCopy } = await prepare();
  expect([identity.layers, identity.diskMib, isCopy]).toEqual([2, SIZE_MIB, true]);
  expect(readdirSync(places.directory).toSorted()).toEqual(
    ['base.erofs', 'disk.qcow2', 'layer-0.qcow2', 'layer-1.qcow2', 'sandbox.json'].toSorted(),
  );
  // A start that failed has written a part of it.
  writeFileSync(places.disk, 'half');
  expect((await prepare()).isCopy).toBe(true);
  expect(readFileSync(places.disk, 'latin1')).not.toBe('half');

  mkdirSync(places.run);
  const record = 'supervisor 1 1\nboot earlier\nstarted 1700000000000000\nready 1700000000000001\n';
  writeFileSync(places.record, record);
  writeFileSync(places.disk, 'its own files');
  await noteBegun((await readHeld(directory, ids.snapshotId))!);
  // The next run fails before its first program.
  rmSync(places.run, { recursive: true });
  await captures.remove(ids.snapshotId);
  expect((await prepare()).isCopy).toBe(false);
  expect(readFileSync(places.disk, 'latin1')).toBe('its own files');
});
