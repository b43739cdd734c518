import {
  copyFileSync,
  linkSync,
  mkdirSync,
  readdirSync,
  statSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { BASE_FILE } from '../../src/engines/microvm/images/build-base.js';
import { ImageStore } from '../../src/engines/microvm/images/image-store.js';
import { withDiskLock } from '../../src/volumes/storage/disks/disk-lock.js';
import { build, layersOf, makeFolder } from '../support/erofs.js';
import { layerOf } from '../support/private-registry.js';

const config = {
  env: [],
  cmd: [],
  entrypoint: [],
  user: '',
  workdir: '',
  stopSignal: null,
  exposedPorts: [],
  volumes: [],
};
const digest = `sha256:${'a'.repeat(64)}`;
const step = async <T>(work: () => T) => Promise.resolve(work());
const { signal } = new AbortController();

const ROUNDS = 10;

async function makeStore() {
  const store = new ImageStore(join(makeFolder(), 'images'));
  const layers = layersOf([await layerOf({ a: 'a' })]);
  const add = async () => store.add(digest, config, async (folder) => build(layers, { folder }));
  return { store, add };
}

test('an image that several processes add at once is there once', async () => {
  const { store, add } = await makeStore();
  const base = await add();
  const kept = join(makeFolder(), 'base');
  copyFileSync(join(base.directory, BASE_FILE), kept);
  // The moment in which an addition could remove the image of another is short.
  for (let round = 0; round < ROUNDS; round += 1) {
    await store.remove(digest);
    const added = Array.from({ length: 8 }, async () =>
      store.add(digest, config, async (folder) => {
        copyFileSync(kept, join(folder, BASE_FILE));
        return base.base;
      }),
    );
    for (const image of await Promise.all(added)) expect(image).toEqual(base);
  }
  expect(readdirSync(store.root)).toEqual(['a'.repeat(64)]);
  expect(await store.list()).toEqual([
    { ...base, uses: 0, inode: statSync(join(base.directory, BASE_FILE)).ino },
  ]);
});

test('a failed build leaves nothing', async () => {
  const { store } = await makeStore();
  const failing = store.add(digest, config, async (folder) => {
    writeFileSync(join(folder, BASE_FILE), 'a part');
    return Promise.reject(new Error('no room'));
  });
  await expect(failing).rejects.toThrow('no room');
  expect(readdirSync(store.root)).toEqual([]);
});

test('a base with other bytes is found, also when it was right before', async () => {
  const { store, add } = await makeStore();
  const image = await add();
  const file = join(image.directory, BASE_FILE);
  expect(await store.isIntact(image, step, signal)).toBe(true);
  linkSync(file, `${file}.link`);
  expect(await store.isIntact(image, step, signal)).toBe(true);
  writeFileSync(file, 'x', { flag: 'r+' });
  expect(await store.isIntact(image, step, signal)).toBe(false);
  truncateSync(file, 0);
  expect(await store.isIntact(image, step, signal)).toBe(false);
  expect(await store.remove(digest)).toBe(true);
  expect(await store.isIntact(image, step, signal)).toBe(false);
  expect([await store.remove(digest), await store.find(digest)]).toEqual([false, undefined]);
});

test('a record that is not one of this image is no image', async () => {
  const { store, add } = await makeStore();
  const { directory } = await add();
  for (const text of ['', '{}', JSON.stringify({ format: 1, digest: 'other', base: {}, config })]) {
    writeFileSync(join(directory, 'image.json'), text);
    expect(await store.find(digest)).toBeUndefined();
  }
  expect(await store.list()).toEqual([]);
});

test('leftovers go, but not the draft of a process that lives', async () => {
  const { store } = await makeStore();
  const names = ['.new-dead', '.new-young', '.new-alive', '.removed-dead'];
  for (const name of names) {
    mkdirSync(join(store.root, name), { recursive: true });
    if (name !== '.new-young') utimesSync(join(store.root, name), 0, 0);
  }
  await withDiskLock(join(store.root, '.new-alive'), async () => store.removeLeftovers());
  expect(readdirSync(store.root).toSorted()).toEqual(['.new-alive', '.new-young']);
});
