import { existsSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { ExplainedError } from '../../lib/explained-error.js';
import { sleep } from '../../lib/sleep.js';
import type { DataDirectory } from './directory.js';

/** How long an orphan may take to write everything down and leave, in milliseconds. */
const LEAVE_TIMEOUT_MS = 30_000;

export function socketPath(directory: DataDirectory): string {
  return join(directory.run, '.s.PGSQL.5432');
}

/** What the first lines of postmaster.pid say, or undefined when there is none or it is not complete. */
export function readPidFile(directory: DataDirectory): { pid: number; status: string } | undefined {
  let lines: string[];
  try {
    lines = readFileSync(join(directory.cluster, 'postmaster.pid'), 'utf8').split('\n');
  } catch {
    return undefined;
  }
  const pid = Number(lines[0]);
  return Number.isSafeInteger(pid) && pid > 0 ? { pid, status: (lines[7] ?? '').trim() } : undefined;
}

/**
 * Deals with what a killed predecessor left. Call it only as owner of the directory.
 *
 * A server that still runs is told to stop, and waited for. The files of one that is gone are removed: PostgreSQL would
 * otherwise refuse to start when another process has got the same number meanwhile, or when the dead one is a zombie.
 * The test for "gone" does not trust the number: no process of this cluster lives, and nobody answers on its socket
 * (which also sees a server in another container that mounts the same directory).
 */
export async function clearPredecessor(directory: DataDirectory): Promise<'none' | 'stopped' | 'stale'> {
  const file = readPidFile(directory);
  const found = file !== undefined || existsSync(socketPath(directory));
  let stopped = false;
  const deadline = Date.now() + LEAVE_TIMEOUT_MS;
  for (;;) {
    const processes = processesOf(directory.cluster);
    if (processes.length === 0 && !(await answers(socketPath(directory)))) break;
    const pid = readPidFile(directory)?.pid;
    if (!stopped && pid !== undefined && isOf(directory.cluster, pid)) {
      // "fast": end sessions, write a checkpoint, leave.
      process.kill(pid, 'SIGINT');
      stopped = true;
    }
    if (Date.now() > deadline) {
      const who = processes.length === 0 ? '' : ` (process ${processes.join(', ')})`;
      throw new ExplainedError(
        `another PostgreSQL still serves ${directory.cluster}${who} and did not stop: stop it, then try again`,
      );
    }
    await sleep(20);
  }
  rmSync(join(directory.cluster, 'postmaster.pid'), { force: true });
  rmSync(socketPath(directory), { force: true });
  rmSync(`${socketPath(directory)}.lock`, { force: true });
  return stopped ? 'stopped' : found ? 'stale' : 'none';
}

/** Does anything listen on this unix socket? Connecting succeeds also while that is busy, or hangs. */
export async function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    // Anything else, such as a full queue, is no sign of death.
    socket.once('error', ({ code }: NodeJS.ErrnoException) => {
      resolve(code !== 'ECONNREFUSED' && code !== 'ENOENT');
    });
  });
}

const HAS_PROC = existsSync('/proc/self/cmdline');

function processesOf(cluster: string): number[] {
  if (!HAS_PROC) return [];
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .filter((pid) => isOf(cluster, pid));
}

/**
 * Is this a live process of the cluster? The postmaster and the shells around it name the cluster on their command
 * line, which everybody may read; the postmaster's children only work in it, as others may who look around there, and
 * where they work is hidden from a root without CAP_SYS_PTRACE, as in most containers. PostgreSQL itself refuses to
 * start beside such a child. Nothing can be read of a zombie.
 */
function isOf(cluster: string, pid: number): boolean {
  try {
    // Without /proc, the number has to do.
    if (!HAS_PROC) return process.kill(pid, 0);
    if (readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(`\0-D\0${cluster}\0`)) return true;
    return (
      readFileSync(`/proc/${pid}/comm`, 'utf8') === 'postgres\n' &&
      readlinkSync(`/proc/${pid}/cwd`) === cluster
    );
  } catch {
    return false;
  }
}
