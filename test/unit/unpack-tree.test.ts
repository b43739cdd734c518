import { setTimeout as pause } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { unpackTree } from '../../src/backup/files/tar-program.js';
import { tarHeader } from '../../src/lib/tar-entry.js';

async function* slowly(piece: Buffer): AsyncGenerator<Buffer> {
  for (let pieces = 0; pieces < 20; pieces += 1) {
    yield piece;
    await pause(50);
  }
}

test('a tar that has read the whole archive may end before its padding arrives', async () => {
  await expect(unpackTree('/tmp', slowly(Buffer.alloc(512)))).resolves.toBeUndefined();
});

test('content is read to its end, also when tar ends before it', async () => {
  let isReadToTheEnd = false;
  const content = async function* () {
    yield* slowly(Buffer.alloc(512));
    for (let count = 0; count < 20; count += 1) yield Buffer.alloc(1024 * 1024);
    isReadToTheEnd = true;
  };
  await unpackTree('/tmp', content());
  expect(isReadToTheEnd).toBe(true);
});

test('a tar that refuses the content is quoted', async () => {
  await expect(unpackTree('/tmp', slowly(Buffer.alloc(10_240, 'x')))).rejects.toThrow(
    'the files of /tmp cannot be restored: tar',
  );
});

test('a tar that has failed is given no more content', async () => {
  const endless = async function* () {
    for (;;) {
      yield tarHeader('file', 0);
      await pause(1);
    }
  };
  await expect(unpackTree('/nowhere', endless())).rejects.toThrow('/nowhere cannot be restored');
});

test('a fault of the content is the error', async () => {
  const content = async function* () {
    yield Buffer.alloc(512);
    await pause(10);
    throw new Error('the disk is gone');
  };
  await expect(unpackTree('/tmp', content())).rejects.toThrow('the disk is gone');
});
