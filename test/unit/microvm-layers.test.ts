import { readdirSync } from 'node:fs';
import { buffer } from 'node:stream/consumers';
import { gzipSync } from 'node:zlib';
import tar from 'tar-stream';
import { expect, test } from 'vitest';
import { LayerTree } from '../../src/engines/microvm/images/layer-tree.js';
import type { TarEntry } from '../../src/registry/tar-entry.js';
import { PullError } from '../../src/registry/pull-error.js';
import { build, layersOf, makeFolder } from '../support/erofs.js';
import { layerOf } from '../support/private-registry.js';

/** `zstd -19` of a layer with one file: 20,000 times "a line of a file that repeats". */
const ZSTD =
  'KLUv/aQALgkAxAIAIoQNEaDtgEnl3Znz/zF8bKqoBm8DIa6ih6BX1RqxlaxOzqgtZj2AulGCAw9x3/8hYwyXYv6DnWgDCwB+9weVO8lRAP4Z9A2SAW6qc2C42wEBwIIXMDwBLUQAAAABAP3/IVdARAAAAAEA/f85AAJEAAAAAQD9/zkAAmUAAAgAAgA8vL/0puQACIg8Dy8=';

const text = 'a line of a file that repeats\n'.repeat(20_000);

async function repeats(): Promise<Buffer> {
  const archive = tar.pack();
  archive.entry({ name: 'text', mtime: new Date(0), mode: 0o644 }, text);
  archive.finalize();
  return buffer(archive);
}

async function failure(layers: Buffer[], packed = layers, maxBytes = Infinity): Promise<string> {
  const folder = makeFolder();
  const error = await build(layersOf(layers, packed), { folder, maxBytes }).catch((error: unknown) => error);
  expect(readdirSync(folder).filter((name) => name !== 'base.erofs')).toEqual([]);
  if (error instanceof PullError) return `${error.failure}: ${error.message}`;
  throw error ?? new Error('the layers were accepted');
}

/** A layer without the two blocks of its end, and with other bytes in its first header. */
async function changed(name: string, change: (header: Buffer) => void): Promise<Buffer> {
  const layer = await layerOf({ [name]: '' });
  const header = layer.subarray(0, 512);
  change(header);
  header.write('        ', 148);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  return layer;
}

const link = (name: string, linkname: string) => ({ name, linkname, type: 'link' as const });
const symlink = (name: string, linkname: string) => ({ name, linkname, type: 'symlink' as const });

test.each<[string, () => Promise<Buffer>, string]>([
  ['..', () => layerOf({ 'a/../../etc/passwd': '' }), 'a path in a layer has ".."'],
  ['a hard link out', () => layerOf({}, [link('a', '../../etc/passwd')]), 'a path in a layer has ".."'],
  [
    'a hard link to nothing',
    () => layerOf({}, [link('a', '/etc/passwd')]),
    'a layer has a hard link to a file that does not exist',
  ],
  [
    'a hard link to a directory',
    () => layerOf({ 'd/file': '' }, [link('a', 'd')]),
    'a layer has a hard link to a file that does not exist',
  ],
  [
    'symlinks in a ring',
    () => layerOf({}, [symlink('a', 'b'), symlink('b', 'a'), { name: 'a/file' }]),
    'a path in a layer has too many symlinks',
  ],
  ['a long name', () => layerOf({ ['n'.repeat(256)]: '' }), 'a layer has a name that is too long'],
  ['a long path', () => layerOf({ ['n/'.repeat(2_100)]: '' }), 'a layer has a path that is too long'],
  ['a whiteout of nothing', () => layerOf({ 'd/.wh.': '' }), 'a layer has a whiteout of no name'],
  ['a whiteout of the parent', () => layerOf({ 'd/.wh...': '' }), 'a layer has a whiteout of no name'],
  [
    'an empty symlink',
    () => layerOf({}, [symlink('a', '')]),
    'a layer has a symlink with an impossible target',
  ],
  [
    'an owner that is no number',
    () => layerOf({}, [{ name: 'a', pax: { uid: '1e3' } }]),
    'an entry of a layer has an invalid owner',
  ],
  [
    'an owner that Linux does not know',
    () => layerOf({}, [{ name: 'a', pax: { uid: '4294967295' } }]),
    'a header of a layer has an impossible number',
  ],
  [
    'a name with the byte 0',
    () => layerOf({}, [{ name: 'a', pax: { path: 'a\0b' } }]),
    'a name in a layer has the byte 0',
  ],
  [
    'a header that is no number',
    () => changed('a', (header) => header.write('9'.repeat(7), 108)),
    'a header of a layer has an invalid number',
  ],
  [
    'a device of an impossible number',
    () => changed('a', (header) => header.write('7777777', 329)),
    'a header of a layer has an impossible number',
  ],
  [
    'a cut file',
    async () => (await layerOf({ a: 'x'.repeat(1_000) })).subarray(0, 600),
    'a layer ends within a file',
  ],
  [
    'entries after a block of zeroes',
    async () => Buffer.concat([Buffer.alloc(512), await layerOf({ a: '' })]),
    'a layer has a block of zeroes between entries',
  ],
])('a layer with %s is refused', async (_, makeLayer, message) => {
  expect(await failure([await makeLayer()])).toBe(`broken: ${message}`);
});

test('entries after the end of the archive are ignored', async () => {
  const layer = await layerOf({ a: '' });
  const hidden = Buffer.concat([layer, await layerOf({ b: 'x'.repeat(10_000) })]);
  expect((await build(layersOf([hidden]))).sha256).toBe((await build(layersOf([layer]))).sha256);
});

test('the memory of an image is bounded, whatever its layers replace', () => {
  const entry = (path: string, more: Partial<TarEntry> = {}): TarEntry => {
    const numbers = {
      mode: 0,
      uid: 0,
      gid: 0,
      seconds: 0,
      nanos: 0,
      major: 0,
      minor: 0,
      size: 0,
      position: 0,
    };
    return { type: 'file', path, target: '', xattrs: new Map(), ...numbers, ...more };
  };
  const added = (make: (tree: LayerTree, n: number) => void): number => {
    const tree = new LayerTree(1_000_000);
    let count = 0;
    const add = () => {
      for (; count < 10_000; count += 1) make(tree, count);
    };
    expect(add).toThrow('the files need more than 1000000 bytes of memory');
    return count;
  };
  expect(added((tree, n) => tree.add(entry(`${n}`)))).toBeGreaterThan(2_000);
  expect(added((tree) => tree.add(entry('n/'.repeat(2_000))))).toBeLessThan(230);
  expect(
    added((tree, n) => tree.add(entry(`${n}`, { type: 'symlink', target: 'x'.repeat(4_000) }))),
  ).toBeLessThan(230);
  expect(
    added((tree, n) => tree.add(entry(`${n}`, { xattrs: new Map([['user.a', 'x'.repeat(4_000)]]) }))),
  ).toBeLessThan(230);
  const throughLink = added((tree, n) => {
    tree.beginLayer();
    if (n === 0) tree.add(entry('link', { type: 'symlink', target: 'x/../'.repeat(800) }));
    tree.add(entry('link/file'));
  });
  expect(throughLink).toBeLessThan(230);
});

test('a layer of zstd is uncompressed', async () => {
  const layer = await repeats();
  const plain = await build(layersOf([layer]));
  const packed = Buffer.from(ZSTD, 'base64');
  expect((await build(layersOf([layer], [packed]))).sha256).toBe(plain.sha256);
  const skipped = Buffer.from('502a4d1803000000616263', 'hex');
  const several = Buffer.concat([skipped, ...framesOf(layer), skipped]);
  expect((await build(layersOf([layer], [several]))).sha256).toBe(plain.sha256);
});

const MAGIC = '28b52ffd';

/** Frames of zstd with blocks that are not compressed. */
function framesOf(bytes: Buffer): Buffer[] {
  const frames: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += 100_000) {
    const content = bytes.subarray(at, at + 100_000);
    frames.push(Buffer.from(`${MAGIC}0040`, 'hex'), block(0, content.length, content, true));
  }
  return frames;
}

function block(type: number, size: number, content: Buffer, isLast = false): Buffer {
  const header = Buffer.alloc(3);
  header.writeUIntLE((size << 3) | (type << 1) | Number(isLast), 0, 3);
  return Buffer.concat([header, content]);
}

test.each<[string, Buffer[], string]>([
  ['a window of 3 TiB', [Buffer.from(`${MAGIC}00f8`, 'hex')], 'unsupported: a layer needs'],
  [
    'one segment of 2^63 bytes',
    [Buffer.from(`${MAGIC}e000000000000000080`.padEnd(26, '0'), 'hex')],
    'unsupported:',
  ],
  ['a dictionary', [Buffer.from(`${MAGIC}010001`, 'hex')], 'broken: a layer needs a dictionary of zstd'],
  [
    'a block of an unknown type',
    [Buffer.from(`${MAGIC}0000`, 'hex'), block(3, 1, Buffer.alloc(9))],
    'broken:',
  ],
  [
    'a block of 2 MiB in 4 bytes',
    [Buffer.from(`${MAGIC}0068`, 'hex'), block(1, 2_000_000, Buffer.alloc(20))],
    'broken: a block of zstd is invalid',
  ],
  [
    'compressed content that makes no sense',
    [Buffer.from(`${MAGIC}0040`, 'hex'), block(2, 30, Buffer.alloc(30, 0xa5), true)],
    'broken:',
  ],
  ['other bytes between frames', [...framesOf(Buffer.alloc(1_024)), Buffer.from('xxxx')], 'broken:'],
  ['a cut frame', [Buffer.from(`${MAGIC}0040ff`, 'hex')], 'broken: a layer ends within a frame of zstd'],
])('a layer of zstd with %s is refused', async (_, packed, message) => {
  const layer = await layerOf({ a: '' });
  expect(await failure([layer], [Buffer.concat(packed)])).toContain(message);
});

test('layers that uncompress to more than the limit are refused as they pass', async () => {
  const bomb = Buffer.concat([
    Buffer.from(`${MAGIC}0068`, 'hex'),
    ...Array.from({ length: 50_000 }, () => block(1, 131_072, Buffer.alloc(1))),
  ]);
  const layer = await layerOf({ a: '' });
  const limit = 16 * 1_024 * 1_024;
  expect(await failure([layer], [bomb], limit)).toBe(`too_large: the layers have more than ${limit} bytes`);
  const zeros = gzipSync(Buffer.alloc(64 * 1_024 * 1_024));
  expect(await failure([layer], [zeros], limit)).toBe(`too_large: the layers have more than ${limit} bytes`);
});

test.each(['bytes after its end', 'a changed byte', 'another layer'])(
  'a layer of gzip with %s is refused',
  async (what) => {
    const layer = await layerOf({ a: 'content' });
    const packed = gzipSync(what === 'another layer' ? await layerOf({ a: 'other' }) : layer);
    if (what === 'a changed byte') packed[packed.length - 6]! ^= 1;
    const sent = what === 'bytes after its end' ? Buffer.concat([packed, Buffer.from('x')]) : packed;
    expect(await failure([layer], [sent])).toMatch(/^(broken|mismatch): /);
  },
);

test('an aborted build stops with the reason of its signal', async () => {
  const over = new AbortController();
  const [layer] = layersOf([await layerOf({ a: 'x'.repeat(1_000_000) })]);
  const open = async () => {
    over.abort(new Error('enough'));
    return layer!.open();
  };
  await expect(build([{ ...layer!, open }], { signal: over.signal })).rejects.toThrow('enough');
});

test('the error of a source is the error of the build', async () => {
  const layer = await layerOf({ a: 'x'.repeat(1_000_000) });
  for (const packed of [layer, gzipSync(layer), Buffer.concat(framesOf(layer))]) {
    async function* source() {
      yield packed.subarray(0, 700);
      throw new Error('the registry is gone');
    }
    const [first] = layersOf([layer]);
    await expect(build([{ ...first!, open: async () => Promise.resolve(source()) }])).rejects.toThrow(
      'the registry is gone',
    );
  }
});
