import { expect, test } from 'vitest';
import type { FileStat, GuestFiles } from '../../src/guest/guest.js';
import { SourceWalk } from '../../src/templates/build/walk.js';

const FILE = 0o100644;
const DIRECTORY = 0o040755;

function statOf(mode: number, size = 0n): FileStat {
  return { mode, uid: 0, gid: 0, size, mtime: 0n, atime: 0n };
}

/** A hostile guest, whose directory has these pages. */
function guestOf(pages: (FileStat & { name: string })[][]): GuestFiles {
  const left = [...pages];
  const files: Partial<GuestFiles> = {
    stat: async () => Promise.resolve(statOf(DIRECTORY)),
    realPath: async (path) => Promise.resolve(path),
    openDir: async () => Promise.resolve(1),
    readDir: async () => Promise.resolve(left.shift() ?? []),
    readLink: async () => Promise.resolve('x'.repeat(5_000)),
    close: async () => Promise.resolve(),
  };
  return files as GuestFiles;
}

let turns = 0;
async function turn<T>(work: () => T): Promise<T> {
  turns += 1;
  return Promise.resolve(work());
}

const walk = (pages: (FileStat & { name: string })[][], signal = new AbortController().signal) =>
  new SourceWalk(guestOf(pages), signal, turn).add('/src');
const page = (from: number, length: number) =>
  Array.from({ length: 1_000 }, (_, index) => ({
    ...statOf(FILE),
    name: `${from + index}`.padStart(length, 'n'),
  }));

test.each([
  ['a name with "/"', [[{ ...statOf(FILE), name: '../../etc/passwd' }]], 'without a valid name'],
  ['an empty name', [[{ ...statOf(FILE), name: '' }]], 'without a valid name'],
  [
    'a device',
    [[{ ...statOf(0o060644), name: 'sda' }]],
    '"/src/sda" is neither a file, a directory nor a link',
  ],
  ['a long name', [[{ ...statOf(FILE), name: 'x'.repeat(2_000) }]], 'more than 1024 characters'],
  ['a long link', [[{ ...statOf(0o120777), name: 'l' }]], 'more than 1024 characters'],
  [
    'entries without an end',
    Array.from({ length: 101 }, (_, index) => page(index * 1_000, 8)),
    'more than 100000',
  ],
  ['long paths', Array.from({ length: 9 }, (_, index) => page(index * 1_000, 1_000)), 'or long paths'],
])('a guest with %s ends the copy', async (_, pages, message) => {
  await expect(walk(pages)).rejects.toThrow(message);
});

test('a pattern is compared with one name in a turn, and with a bounded number of them', async () => {
  const before = turns;
  const pages = [page(0, 8), []];
  const found = new SourceWalk(guestOf(pages), new AbortController().signal, turn);
  await found.add('/src/*7');
  expect(turns - before).toBe(1_000);
  expect([...found.entries.keys()].filter((path) => path !== 'src')).toHaveLength(100);
  const many = Array.from({ length: 101 }, (_, index) => page(index * 1_000, 8));
  const endless = new SourceWalk(guestOf(many), new AbortController().signal, turn);
  await expect(endless.add('/src/*no')).rejects.toThrow('compared with more than 100000 names');
});

test('a source with ".." is refused', async () => {
  await expect(
    new SourceWalk(guestOf([]), new AbortController().signal, turn).add('/a/../b'),
  ).rejects.toThrow('leads out of');
});

test('an aborted build reads no further entry', async () => {
  await expect(walk([page(0, 8)], AbortSignal.abort('cancelled'))).rejects.toBe('cancelled');
});
