import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { DiskView } from '../../src/engines/docker/files/disk-view.js';

const room = mkdtempSync(join(tmpdir(), 'sandkeep-disk-'));
const [upper, middle, lower] = ['upper', 'middle', 'lower'].map((name) => join(room, name));
let view: DiskView;

beforeAll(async () => {
  for (const layer of [upper!, middle!, lower!]) mkdirSync(join(layer, 'etc'), { recursive: true });
  writeFileSync(join(lower!, 'etc/passwd'), 'low');
  writeFileSync(join(lower!, 'etc/group'), 'lower');
  writeFileSync(join(middle!, 'etc/passwd'), 'in the middle');
  execFileSync('mkfifo', [join(upper!, 'etc/hosts'), join(lower!, 'pipe')]);
  mkdirSync(join(lower!, 'a/b'), { recursive: true });
  writeFileSync(join(lower!, 'a/b/c'), '');
  writeFileSync(join(upper!, 'a'), 'no directory any more');
  symlinkSync('../../../../pipe', join(upper!, 'etc/link'));
  symlinkSync('/etc', join(upper!, 'way'));
  symlinkSync(tmpdir(), join(upper!, 'outside'));
  symlinkSync('loop', join(upper!, 'loop'));
  view = await DiskView.open([upper!, middle!, lower!]);
});
afterAll(async () => {
  await view.close();
  rmSync(room, { recursive: true });
});

test.each([
  ['/etc', { type: 'directory' }],
  ['/etc/passwd', { type: 'file', size: 13 }],
  ['/etc/group', { type: 'file', size: 5 }],
  ['/etc/hosts', { type: 'other' }],
  ['/way/group', { type: 'file', size: 5 }],
  ['/etc/link', { type: 'symlink', target: '/pipe' }],
  ['/pipe', { type: 'other' }],
  ['/way', { type: 'symlink', target: '/etc' }],
  ['/loop', { type: 'symlink', target: '/loop' }],
  ['/loop/x', undefined],
  ['/a', { type: 'file' }],
  ['/a/b/c', undefined],
  ['/etc/missing', undefined],
  ['/etc/passwd/x', undefined],
  [`/${'x'.repeat(300)}`, undefined],
  // A link leads nowhere on the disk, and never to the machine.
  ['/outside', { type: 'symlink', target: tmpdir() }],
  [`/outside/${room.split('/').at(-1)}`, undefined],
])('the topmost directory decides about %s', async (path, expected) => {
  const found = await view.stat(path);
  if (expected === undefined) expect(found).toBeUndefined();
  else expect(found).toMatchObject(expected);
});

test('links through many directories are refused before they use up the descriptors', async () => {
  mkdirSync(join(upper!, 'd/d/d/d/d/d/d/d'), { recursive: true });
  const small = await DiskView.open([upper!, middle!, lower!], 8);
  try {
    await expect(small.stat('/d/d/d/d/d/d/d/d')).rejects.toThrow('too many links and directories');
  } finally {
    await small.close();
  }
});

test('links through many names that do not exist are refused before they take the event loop', async () => {
  const missing = '/a'.repeat(2_000);
  for (let at = 0; at < 32; at += 1) symlinkSync(`/l${at + 1}${missing}`, join(lower!, `l${at}`));
  symlinkSync('/l0', join(lower!, 'chain'));
  const own = await DiskView.open([upper!, middle!, lower!]);
  try {
    await expect(own.stat('/chain/x')).rejects.toThrow('too many links and directories');
  } finally {
    await own.close();
  }
});

test('names that are not UTF-8, or look like their text, lead to their own files', async () => {
  const own = join(room, 'bytes');
  const nameOf = (...parts: (string | Buffer)[]) => Buffer.concat(parts.map((part) => Buffer.from(part)));
  mkdirSync(own);
  writeFileSync(nameOf(`${own}/`, Buffer.of(0xff)), 'the file');
  execFileSync('mkfifo', [join(own, String.raw`\xff`)]);
  symlinkSync(nameOf('/', Buffer.of(0xff)), join(own, 'byte'));
  symlinkSync(String.raw`/\xff`, join(own, 'text'));
  const bytes = await DiskView.open([own]);
  try {
    const [byte, text] = [await bytes.stat('/byte'), await bytes.stat('/text')];
    expect(await bytes.stat(byte!.target)).toMatchObject({ type: 'file', size: 8 });
    expect(await bytes.stat(text!.target)).toMatchObject({ type: 'other' });
  } finally {
    await bytes.close();
  }
});
