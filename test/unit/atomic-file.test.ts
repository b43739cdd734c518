import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { FileDraft, writeFileAtomically, writeFileAtomicallySync } from '../../src/lib/atomic-file.js';

let directory: string;
let path: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'sandkeep-atomic-'));
  path = join(directory, 'file');
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const content = () => readFileSync(path, 'utf8');

test.each([
  ['asynchronously', writeFileAtomically],
  [
    'synchronously',
    async (...args: Parameters<typeof writeFileAtomicallySync>) =>
      Promise.resolve().then(() => writeFileAtomicallySync(...args)),
  ],
])(
  'a file that is written %s is private, replaced only on request, and leaves no draft',
  async (_, write) => {
    await write(path, 'one', { replace: false });
    expect(statSync(path).mode & 0o777).toBe(0o600);
    await expect(write(path, 'two', { replace: false })).rejects.toMatchObject({ code: 'EEXIST' });
    expect(content()).toBe('one');
    await write(path, 'three', { replace: true });
    expect(content()).toBe('three');
    expect(readdirSync(directory)).toEqual(['file']);
  },
);

test('readers see the previous file until a draft is published, and nothing of a discarded one', async () => {
  await writeFileAtomically(path, 'previous', { replace: false });
  const draft = await FileDraft.open(path);
  await draft.handle.writeFile('new');
  expect(content()).toBe('previous');
  await draft.publish({ replace: true });
  expect(content()).toBe('new');

  const discarded = await FileDraft.open(path);
  await discarded.handle.writeFile('discarded');
  await discarded.discard();
  expect([content(), readdirSync(directory)]).toEqual(['new', ['file']]);
});
