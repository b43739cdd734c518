import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { measure } from '../../src/volumes/storage/disk-usage.js';

test('the size of a directory is that of du, whether it has files or not', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sandkeep-test-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const [empty, full, link] = ['empty', 'full', 'link'].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  for (const directory of [empty, full]) mkdirSync(directory);
  writeFileSync(join(full, 'file'), Buffer.alloc(100_000, 'x'));
  symlinkSync(full, link);
  for (const directory of [empty, full, link]) {
    const text = execFileSync('du', ['-skx', '--', directory], { encoding: 'utf8' });
    expect(await measure(directory, new AbortController().signal)).toBe(Number.parseInt(text, 10));
  }
  expect(await measure(join(folder, 'absent'), new AbortController().signal)).toBeUndefined();
  for (const directory of [empty, full]) {
    await expect(measure(directory, AbortSignal.abort())).rejects.toThrow(/abort/i);
  }
});
