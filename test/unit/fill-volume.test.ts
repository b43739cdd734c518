import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { newId } from '../../src/lib/uuid.js';
import { VolumeStore } from '../../src/volumes/storage/store.js';

const ORG = newId();
/** Directories that a guest exchanges for links. */
const LINKS = 20;
const signal = new AbortController().signal;

let root: string;
let store: VolumeStore;
beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), 'sandkeep-fill-'));
  store = new VolumeStore(join(root, 'volumes'));
  await store.prepare();
});
afterAll(async () => {
  await store.close();
  rmSync(root, { recursive: true, force: true });
});

const fill = (from: string, to: string, onBytes: (bytes: number) => void = () => undefined) =>
  store.fill(ORG, { from, to, capGib: null }, { onBytes, signal });

test('a copy has the files with their modes, times, owners, links and holes', async () => {
  const [from, to] = [newId(), newId()];
  const source = await store.ensure(ORG, from);
  mkdirSync(join(source, 'private/below'), { recursive: true });
  writeFileSync(join(source, 'private/below/file'), 'content');
  linkSync(join(source, 'private/below/file'), join(source, 'same'));
  symlinkSync('/etc/passwd', join(source, 'leads-out'));
  writeFileSync(join(source, '-odd \n name ü'), 'odd');
  writeFileSync(join(source, 'sparse'), '');
  truncateSync(join(source, 'sparse'), 1024 ** 3);
  chmodSync(join(source, 'private'), 0o1751);
  utimesSync(join(source, 'same'), 1_000_000, 2_000_000);
  if (process.getuid!() === 0) chownSync(join(source, 'same'), 1234, 4321);
  await fill(from, to);
  const copy = await store.ensure(ORG, to);
  expect(readdirSync(copy).toSorted()).toEqual(readdirSync(source).toSorted());
  for (const name of ['private', 'private/below', 'same', 'sparse', '-odd \n name ü', '.']) {
    const [before, after] = [statSync(join(source, name)), statSync(join(copy, name))];
    const shown = ({ mode, uid, gid, nlink, size }: typeof before) => ({ mode, uid, gid, nlink, size });
    const isFile = before.isFile();
    expect([name, shown(after).mode, after.uid, after.gid]).toEqual([
      name,
      before.mode,
      before.uid,
      before.gid,
    ]);
    if (isFile) expect(shown(after)).toEqual(shown(before));
  }
  expect(statSync(join(copy, 'same')).mtimeMs).toBe(2_000_000_000);
  expect(statSync(join(copy, 'same')).ino).toBe(statSync(join(copy, 'private/below/file')).ino);
  expect(statSync(join(copy, 'same')).ino).not.toBe(statSync(join(source, 'same')).ino);
  expect(readlinkSync(join(copy, 'leads-out'))).toBe('/etc/passwd');
  expect(statSync(join(copy, 'sparse')).blocks).toBeLessThan(1_000);
  // The service enters it alone.
  expect(lstatSync(join(copy, '..')).mode & 0o777).toBe(0o700);
});

test('a repeated copy replaces what an interrupted one left', async () => {
  const [from, to] = [newId(), newId()];
  writeFileSync(join(await store.ensure(ORG, from), 'file'), 'x'.repeat(1024 ** 2));
  const stop = () => {
    throw new Error('enough');
  };
  await expect(fill(from, to, stop)).rejects.toThrow('enough');
  const left = await store.ensure(ORG, to);
  mkdirSync(left, { recursive: true });
  writeFileSync(join(left, 'left'), 'of the first one');
  await fill(from, to);
  expect(readdirSync(await store.ensure(ORG, to))).toEqual(['file']);
});

test('a source that never had data gives none', async () => {
  const [from, to] = [newId(), newId()];
  await fill(from, to);
  expect(await store.measure(ORG, to, signal)).toBeUndefined();
});

test('a directory that becomes a link during the copy does not bring files from elsewhere', async () => {
  const [from, to] = [newId(), newId()];
  const source = await store.ensure(ORG, from);
  const secret = join(root, 'outside');
  mkdirSync(secret, { recursive: true });
  writeFileSync(join(secret, 'secret'), 'of the machine');
  mkdirSync(join(source, 'a'));
  writeFileSync(join(source, 'a/large'), 'x'.repeat(2 * 1024 ** 2));
  for (let index = 0; index < LINKS; index += 1) mkdirSync(join(source, `d${index}`));
  let turn = 0;
  const filling = fill(from, to, () => {
    // The guest exchanges directories for links while tar reads.
    for (let index = 0; index < LINKS; index += 1) {
      const path = join(source, `d${index}`);
      if (turn % 2 === 0) {
        renameSync(path, `${path}.real`);
        symlinkSync(secret, path);
      } else {
        rmSync(path);
        renameSync(`${path}.real`, path);
      }
    }
    turn += 1;
  });
  // tar may find a link where it saw a directory, and then fails.
  await filling.catch((error: Error) => expect(error.message).toContain('cannot be read'));
  expect(turn).toBeGreaterThan(0);
  const copy = await store.ensure(ORG, to);
  expect(readdirSync(copy)).toContain('a');
  // A link stays a link. find(1) does not follow it, and the recursive readdir of Node does.
  expect(execFileSync('find', [copy, '-name', 'secret'], { encoding: 'utf8' })).toBe('');
});
