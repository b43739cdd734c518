import { execFileSync } from 'node:child_process';
import { lstatSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect, test } from 'vitest';
import {
  build,
  describeErofs,
  describeTree,
  layersOf,
  makeFolder,
  mount,
  xattrText,
} from '../../support/erofs.js';
import { digestOf, layerOf } from '../../support/private-registry.js';

const directory = (name: string, more: object = {}) => ({ name, type: 'directory' as const, ...more });
const symlink = (name: string, linkname: string) => ({ name, linkname, type: 'symlink' as const });

describeErofs('the base of an image', () => {
  test('has every file as GNU tar packs it: names of any bytes, long ones, old times, holes', async () => {
    const source = join(makeFolder(), 'source');
    mkdirSync(source);
    const name = (bytes: number[]) => Buffer.concat([Buffer.from(`${source}/`), Buffer.from(bytes)]);
    writeFileSync(name([0xff, 0xfe, 0x0a, 0x20]), 'not UTF-8');
    writeFileSync(join(source, 'é\\x'), 'two characters');
    const deep = join(source, ...Array.from({ length: 12 }, () => 'd'.repeat(250)));
    mkdirSync(deep, { recursive: true });
    writeFileSync(join(deep, 'f'.repeat(255)), 'deep');
    execFileSync('truncate', ['--size=64M', join(source, 'holes')]);
    execFileSync(
      'dd',
      [`of=${source}/holes`, 'if=/dev/urandom', 'bs=5000', 'count=1', 'seek=10000', 'conv=notrunc'],
      {
        stdio: 'ignore',
      },
    );
    execFileSync('touch', ['--date=1903-05-06 07:08:09.123456789 UTC', join(source, 'é\\x')]);
    const file = join(makeFolder(), 'layer.tar');
    execFileSync('tar', ['-cf', file, '--format=pax', '--xattrs', '--xattrs-include=*', '-C', source, '.']);

    const base = await build(layersOf([readFileSync(file)]));
    expect(await describeTree(mount(base.file))).toEqual(await describeTree(source));
    expect(statSync(base.file).blocks * 512).toBeLessThan(2 * 1_024 * 1_024);
    expect(base.bytes).toBeGreaterThan(64 * 1_024 ** 2);
  });

  test('has the attributes of files, but none that the overlay above it would read', async () => {
    // A capability of version 2: CAP_NET_RAW, effective and permitted.
    const capability = `\x01\0\0\x02\0\x20${'\0'.repeat(14)}`;
    const pax = {
      'SCHILY.xattr.security.capability': capability,
      'SCHILY.xattr.user.long': 'v'.repeat(10_000),
      'SCHILY.xattr.trusted.own': '1',
      'SCHILY.xattr.trusted.overlay.opaque': 'y',
      'SCHILY.xattr.unknown.name': '1',
    };
    const base = await build(layersOf([await layerOf({}, [{ name: 'file', pax }])]));
    const [, line] = await describeTree(mount(base.file));
    const { 'SCHILY.xattr.trusted.overlay.opaque': _, 'SCHILY.xattr.unknown.name': __, ...expected } = pax;
    expect(line!.split(' | ')[3]).toBe(xattrText(expected));
  });

  test('finds each of many files in one directory, and many inodes', async () => {
    const names = Array.from({ length: 2_000 }, (_, n) => `${n.toString(36)}-${'n'.repeat(n % 200)}`);
    const layer = await layerOf(Object.fromEntries(names.map((name) => [`many/${name}`, name])));
    const mounted = mount((await build(layersOf([layer]))).file);
    expect(new Set(readdirSync(join(mounted, 'many')))).toEqual(new Set(names));
    for (const name of names) expect(readFileSync(join(mounted, 'many', name), 'utf8')).toBe(name);
    expect(() => lstatSync(join(mounted, 'many', 'none'))).toThrow('ENOENT');
  });

  test('resolves symlinks on the way of an entry inside the image alone', async () => {
    const outside = makeFolder();
    const first = await layerOf({ 'usr/lib/old': 'old' }, [
      symlink('lib', 'usr/lib'),
      symlink('up', '../../../../../..'),
      symlink('away', outside),
      symlink('absolute', '/usr'),
    ]);
    const second = await layerOf({
      'lib/new': 'new',
      'up/top': 'top',
      'away/file': 'inside',
      'absolute/file': 'file',
      'lib/.wh.old': '',
    });
    const mounted = mount((await build(layersOf([first, second]))).file);
    expect(readdirSync(join(mounted, 'usr/lib'))).toEqual(['new']);
    expect(readFileSync(join(mounted, 'top'), 'utf8')).toBe('top');
    expect(readFileSync(join(mounted, 'usr/file'), 'utf8')).toBe('file');
    expect(readFileSync(join(mounted, outside, 'file'), 'utf8')).toBe('inside');
    expect(readdirSync(outside)).toEqual([]);
  });

  test('has hard links across layers, and keeps the content that another name still has', async () => {
    const first = await layerOf({ a: 'first' }, [{ name: 'b', type: 'link', linkname: 'a' }]);
    const second = await layerOf({ a: 'second' }, [{ name: 'c', type: 'link', linkname: 'b' }]);
    const mounted = mount((await build(layersOf([first, second]))).file);
    const content = (name: string) => readFileSync(join(mounted, name), 'utf8');
    expect([content('a'), content('b'), content('c')]).toEqual(['second', 'first', 'first']);
    expect(lstatSync(join(mounted, 'c')).ino).toBe(lstatSync(join(mounted, 'b')).ino);
    expect([lstatSync(join(mounted, 'a')).nlink, lstatSync(join(mounted, 'b')).nlink]).toEqual([1, 2]);
  });

  test('hides by whiteouts what earlier layers have, and nothing of their own layer', async () => {
    const first = await layerOf({ 'd/old': 'x', 'e/old': 'x', 'f/old': 'x', gone: 'x' });
    const second = await layerOf({
      'd/new': 'y',
      'd/.wh..wh.opq': '',
      'd/later': 'y',
      '.wh.gone': '',
      'e/.wh.old': '',
      'e/old': 'again',
      '.wh.f': '',
      'f/new': 'y',
      '.wh..wh.plnk/1.2': 'of AUFS',
      '.wh.never': '',
    });
    const mounted = mount((await build(layersOf([first, second]))).file);
    const names = (name: string) => readdirSync(join(mounted, name)).toSorted();
    expect(names('.')).toEqual(['d', 'e', 'f']);
    expect([names('d'), names('e'), names('f')]).toEqual([['later', 'new'], ['old'], ['new']]);
    expect(readFileSync(join(mounted, 'e/old'), 'utf8')).toBe('again');
  });

  test('takes the owner and mode of directories from the last layer, and of their top too', async () => {
    const first = await layerOf({}, [
      directory('.', { mode: 0o700 }),
      directory('d', { uid: 5, mode: 0o1777 }),
    ]);
    const second = await layerOf({ 'implied/file': '' }, [
      directory('./', { mode: 0o2711, gid: 7 }),
      directory('d'),
    ]);
    const mounted = mount((await build(layersOf([first, second]))).file);
    const facts = (name: string) => {
      const { mode, uid, gid } = lstatSync(join(mounted, name));
      return [(mode & 0o7777).toString(8), uid, gid];
    };
    expect(facts('.')).toEqual(['2711', 0, 7]);
    expect(facts('d')).toEqual(['755', 0, 0]);
    expect(facts('implied')).toEqual(['755', 0, 0]);
  });

  test('is the same for layers that are compressed in other ways', async () => {
    const layers = [await layerOf({ file: 'content '.repeat(100_000) }), await layerOf({ other: '' })];
    const packed = layers.map((layer) => gzipSync(layer));
    const members = layers.map((layer) =>
      Buffer.concat([gzipSync(layer.subarray(0, 1_000)), gzipSync(layer.subarray(1_000))]),
    );
    const plain = await build(layersOf(layers));
    expect((await build(layersOf(layers, packed))).sha256).toBe(plain.sha256);
    expect((await build(layersOf(layers, members))).sha256).toBe(plain.sha256);
    expect(plain.sha256).toBe(digestOf(readFileSync(plain.file)).slice('sha256:'.length));
  });
});
