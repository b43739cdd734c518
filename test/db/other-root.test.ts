import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { clearPredecessor } from '../../src/db/embedded/postmaster.js';

/**
 * Runs the script in namespaces of its own until the end of the test. It has the directory in $ROOT, prints a line, and
 * reads one.
 */
async function startElsewhere(namespaces: string[], script: string) {
  const root = mkdtempSync(join(tmpdir(), 'sandkeep-elsewhere-'));
  const cluster = join(root, 'postgres');
  mkdirSync(cluster);
  const other = spawn('unshare', [...namespaces, 'sh', '-c', script], {
    env: { ...process.env, ROOT: root },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  onTestFinished(async () => {
    other.stdin.end();
    await once(other, 'exit');
    rmSync(root, { recursive: true });
  });
  await once(other.stdout, 'data');
  return { root, cluster, run: root, log: join(root, 'log'), owner: join(root, 'owner') };
}

/** Its command line is like that of a server. */
const SERVER = `sh -c 'echo ready && read -r line' sh -D "$ROOT/postgres" end`;

test.skipIf(process.getuid?.() !== 0)(
  'a server of a container, which has another directory at the same path, is not a predecessor',
  async () => {
    const script = `mount -t tmpfs tmpfs "$ROOT" && mkdir "$ROOT/postgres" && ${SERVER}`;
    expect(await clearPredecessor(await startElsewhere(['--mount'], script))).toBe('none');
  },
);

test.skipIf(process.getuid?.() !== 0)(
  'a process in a PID namespace of its own is not a predecessor, whatever its command line says',
  async () => {
    const directory = await startElsewhere(['--pid', '--fork', '--kill-child'], SERVER);
    expect(await clearPredecessor(directory)).toBe('none');
  },
);
