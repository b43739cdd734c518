import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { clearPredecessor } from '../../src/db/embedded/postmaster.js';

test.skipIf(process.getuid?.() !== 0)(
  'a server of a container, which has another directory at the same path, is not a predecessor',
  async () => {
    const root = mkdtempSync(join(tmpdir(), 'sandkeep-other-root-'));
    const cluster = join(root, 'postgres');
    mkdirSync(cluster);
    const script = 'mount -t tmpfs tmpfs "$0" && mkdir "$0/postgres" && echo ready && read -r line';
    const args = ['--mount', 'sh', '-c', script, root, '-D', cluster, 'end'];
    const other = spawn('unshare', args, { stdio: ['pipe', 'pipe', 'inherit'] });
    onTestFinished(async () => {
      other.stdin.end();
      await once(other, 'exit');
      rmSync(root, { recursive: true });
    });
    await once(other.stdout, 'data');
    const directory = { root, cluster, run: root, log: join(root, 'log'), owner: join(root, 'owner') };
    expect(await clearPredecessor(directory)).toBe('none');
  },
);
