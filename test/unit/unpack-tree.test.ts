import { lstatSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { pack, type Pack } from 'tar-stream';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { unpackTree } from '../../src/volumes/storage/tar-program.js';
import { tarHeader } from '../../src/lib/tar-entry.js';

let place: string;
beforeEach(() => {
  place = mkdtempSync(join(tmpdir(), 'sandkeep-unpack-'));
});
afterEach(() => rmSync(place, { recursive: true }));

async function* slowly(piece: Buffer): AsyncGenerator<Buffer> {
  for (let pieces = 0; pieces < 20; pieces += 1) {
    yield piece;
    await pause(50);
  }
}

/** The stream of the library does not end inside another one. */
async function* contentOf(archive: Pack): AsyncGenerator<Buffer> {
  for await (const chunk of archive) yield chunk as Buffer;
}

/** The archive of an empty tree, and blocks of zeros after it. */
async function* emptyTree(): AsyncGenerator<Buffer> {
  yield tarHeader('tree/', 0, 0o755);
  yield* slowly(Buffer.alloc(512));
}

test('a tar that has read the whole archive may end before its padding arrives', async () => {
  await expect(unpackTree(place, 'tree', emptyTree())).resolves.toBeUndefined();
});

test('content is read to its end, also when tar ends before it', async () => {
  let isReadToTheEnd = false;
  const content = async function* () {
    yield* emptyTree();
    for (let count = 0; count < 20; count += 1) yield Buffer.alloc(1024 * 1024);
    isReadToTheEnd = true;
  };
  await unpackTree(place, 'tree', content());
  expect(isReadToTheEnd).toBe(true);
});

test('a tar that refuses the content is quoted', async () => {
  await expect(unpackTree(place, 'tree', slowly(Buffer.alloc(10_240, 'x')))).rejects.toThrow(
    `the files of ${place} cannot be restored: `,
  );
});

test('a tar that has failed is given no more content', async () => {
  const endless = async function* () {
    for (;;) {
      yield tarHeader('file', 0);
      await pause(1);
    }
  };
  await expect(unpackTree('/nowhere', 'file', endless())).rejects.toThrow('/nowhere cannot be restored');
});

test('a fault of the content is the error', async () => {
  const content = async function* () {
    yield Buffer.alloc(512);
    await pause(10);
    throw new Error('the disk is gone');
  };
  await expect(unpackTree(place, 'tree', content())).rejects.toThrow('the disk is gone');
});

test('files beside the tree are left out', async () => {
  const hostile = pack();
  hostile.entry({ name: 'sandkeep.yaml' }, 'x');
  hostile.entry({ name: 'tree', type: 'directory' });
  hostile.entry({ name: 'tree/file' }, 'x');
  hostile.entry({ name: './secret-keys' }, 'x');
  hostile.entry({ name: 'trees' }, 'x');
  hostile.finalize();
  await unpackTree(place, 'tree', contentOf(hostile));
  expect(readdirSync(place)).toEqual(['tree']);
  expect(readdirSync(join(place, 'tree'))).toEqual(['file']);
});

test('a tree that is a link is refused, and a link in its place is not followed', async () => {
  const linked = pack();
  linked.entry({ name: 'tree', type: 'symlink', linkname: tmpdir() });
  linked.finalize();
  await expect(unpackTree(place, 'tree', contentOf(linked))).rejects.toThrow('"tree" is no directory');

  const outside = join(place, 'outside');
  const inside = join(place, 'inside');
  for (const directory of [outside, inside]) mkdirSync(directory);
  symlinkSync(outside, join(inside, 'tree'));
  const through = pack();
  through.entry({ name: 'tree/file' }, 'x');
  through.finalize();
  await expect(unpackTree(inside, 'tree', contentOf(through))).rejects.toThrow('it exists');
  expect(readdirSync(outside)).toEqual([]);
  expect(lstatSync(join(inside, 'tree')).isSymbolicLink()).toBe(true);
});
