import { spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';

const BUILD = join(PACKAGE_ROOT, 'guest', `take-${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}`);
/** The standard streams take these. */
const STREAMS = 3;

describe.skipIf(process.platform !== 'linux')(
  'the program that takes inotify instances and terminals',
  () => {
    let directory: string;
    let take: string;
    beforeAll(() => {
      directory = mkdtempSync(join(tmpdir(), 'sandkeep-take-'));
      take = join(directory, 'take');
      copyFileSync(BUILD, take);
      chmodSync(take, 0o755);
    });
    afterAll(() => rmSync(directory, { recursive: true }));

    test.each(['inotify', 'terminals'])('opens one of %s', (kind) => {
      const { status, stderr } = spawnSync(take, [kind], { encoding: 'utf8' });
      expect([status, stderr]).toEqual([0, '']);
    });

    test.each([
      ['inotify', 'take: cannot open an inotify instance: '],
      ['terminals', 'take: cannot open a pseudo-terminal: '],
    ])('fails with a message where the kernel refuses %s', (kind, message) => {
      const { status, stderr } = spawnSync('prlimit', [`--nofile=${STREAMS}`, take, kind], {
        encoding: 'utf8',
      });
      expect([status, stderr.startsWith(message)]).toEqual([125, true]);
    });

    test('refuses other words', () => {
      expect(spawnSync(take, ['inotifyx']).status).toBe(125);
      expect(spawnSync(take).status).toBe(125);
    });
  },
);
