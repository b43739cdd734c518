import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';

const [FLAKY, OTHER] = ['test/unit/lib.test.ts', 'test/unit/pace.test.ts'];
const ENTRY = { file: FLAKY, owner: 'someone', reason: 'a race with the clock' };

/** The files that CI runs again after a run in which these failed, or why it does not. */
function runAgain(failed: string[], quarantine?: object[]): [files: string, refusal: string] {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-quarantine-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const [report, list] = [join(directory, 'report.json'), join(directory, 'list.json')];
  const testResults = [FLAKY, OTHER].map((file) => ({
    name: join(PACKAGE_ROOT, file),
    status: failed.includes(file) ? 'failed' : 'passed',
  }));
  writeFileSync(report, JSON.stringify({ testResults }));
  if (quarantine) writeFileSync(list, JSON.stringify(quarantine));
  const { stdout, stderr, status } = spawnSync(
    process.execPath,
    ['.ci/quarantined-files.mjs', report, ...(quarantine ? [list] : [])],
    { cwd: PACKAGE_ROOT, encoding: 'utf8' },
  );
  expect(status).toBe(stdout === '' ? 1 : 0);
  return [stdout.trim(), stderr.trim()];
}

test('only files of the quarantine run again, and only when no other failed', () => {
  expect(runAgain([FLAKY], [ENTRY])).toEqual([FLAKY, '']);
  expect(runAgain([FLAKY, OTHER], [ENTRY])).toEqual(['', `failed, and not run again: ${OTHER}`]);
  expect(runAgain([], [ENTRY])).toEqual(['', expect.stringContaining('no file did')]);
});

test('the quarantine has at most three files, each with an owner and a reason', () => {
  expect(runAgain([FLAKY], [ENTRY, ENTRY, ENTRY, ENTRY])).toEqual(['', expect.stringContaining('at most 3')]);
  expect(runAgain([FLAKY], [{ ...ENTRY, owner: '' }])).toEqual(['', expect.stringContaining('no owner')]);
  expect(runAgain([FLAKY], [{ ...ENTRY, file: 'test/none.test.ts' }])).toEqual([
    '',
    expect.stringContaining('no file'),
  ]);
});

test('the list of the repository is valid', () => {
  // Either the file may run again, or it is refused for not being in the list.
  expect(runAgain([OTHER])).toEqual(expect.arrayContaining([expect.stringContaining(OTHER)]));
});
