import { expect, test } from 'vitest';
import type { GuestFiles } from '../../src/guest/guest.js';
import type { Visit } from '../../src/sandboxes/sessions/entrance.js';
import type { Spool } from '../../src/snapshots/archives/spool.js';
import { fetchFiles, MOST_FETCHED_BYTES, MOST_FETCHED_CHARS } from '../../src/templates/build/fetch.js';

/** Copies a file that has `size` bytes by its entry, and `real` bytes when it is read. */
async function fetchFile(
  size: number,
  real: number,
  chars = 0,
): Promise<{ reads: number; kept: number; error: unknown }> {
  const seen = { reads: 0, kept: 0, error: undefined as unknown };
  const files: Partial<GuestFiles> = {
    stat: async () =>
      Promise.resolve({ mode: 0o100644, uid: 0, gid: 0, size: BigInt(size), mtime: 0n, atime: 0n }),
    realPath: async (path) => Promise.resolve(path),
    open: async () => Promise.resolve(1),
    close: async () => Promise.resolve(),
    end: () => undefined,
    read: async (_, offset, length) => {
      seen.reads += 1;
      return Promise.resolve(Buffer.alloc(Math.min(length, real - Number(offset))));
    },
  };
  const record = { sent: () => undefined };
  const visit = {
    guest: { files: () => files },
    recorder: { files: async () => Promise.resolve(record), close: () => undefined },
    ended: new AbortController().signal,
  };
  const spool = {
    get length() {
      return seen.kept;
    },
    append: async (chunk: Buffer) => {
      seen.kept += chunk.length;
      return Promise.resolve();
    },
  };
  const step = {
    line: 3,
    text: 'COPY --from=a /file /',
    type: 'copy-from' as const,
    source: { type: 'stage' as const, index: 0 },
    paths: ['/file'],
    destination: '/',
    target: '/',
    owner: null,
    mode: null,
  };
  await fetchFiles(visit as unknown as Visit, step, {
    spool: spool as unknown as Spool,
    budget: { items: 0, sources: 0, chars },
    turn: async (work) => Promise.resolve(work()),
    signal: new AbortController().signal,
  }).catch((error: unknown) => (seen.error = error));
  return seen;
}

test('a file with holes beyond the limit is refused before it is read', async () => {
  const { reads, error } = await fetchFile(MOST_FETCHED_BYTES + 1, 10);
  expect([reads, (error as Error).message]).toEqual([0, expect.stringContaining('more than 4 GiB')]);
});

test('a guest that tells a smaller size is read up to the limit', async () => {
  const { kept, error } = await fetchFile(0, Number.MAX_SAFE_INTEGER);
  expect([kept, (error as Error).message]).toEqual([
    MOST_FETCHED_BYTES,
    expect.stringContaining('more than 4 GiB'),
  ]);
});

test('a file that has become shorter has the bytes that were read', async () => {
  expect(await fetchFile(1_000, 10)).toMatchObject({ kept: 10, error: undefined });
});

test('the paths of all copies of a build have one bound', async () => {
  // The path and its place below the target.
  const chars = 'file'.length + 'file'.length;
  expect(await fetchFile(10, 10, MOST_FETCHED_CHARS - chars)).toMatchObject({ kept: 10, error: undefined });
  const { kept, error } = await fetchFile(10, 10, MOST_FETCHED_CHARS - chars + 1);
  expect([kept, (error as Error).message]).toEqual([0, expect.stringContaining('too many long paths')]);
});
