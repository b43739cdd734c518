import { existsSync, readdirSync, readFileSync, readlinkSync, rmSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { sleep } from '../../lib/sleep.js';
import type { DataDirectory } from './directory.js';
import { ExplainedError } from '../../lib/explained.js';

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
 * The test for "gone" does not trust the number: no live process works in the directory, and nobody answers on its
 * socket (which also sees a server in another container that mounts the same directory).
 */
export async function clearPredecessor(directory: DataDirectory): Promise<'none' | 'stopped' | 'stale'> {
  const file = readPidFile(directory);
  const found = file !== undefined || existsSync(socketPath(directory));
  let stopped = false;
  const deadline = Date.now() + LEAVE_TIMEOUT_MS;
  while (await isServed(directory)) {
    const pid = readPidFile(directory)?.pid;
    if (pid !== undefined && worksIn(pid, directory.cluster)) {
      // "fast": end sessions, write a checkpoint, leave.
      if (!stopped) process.kill(pid, 'SIGINT');
      stopped = true;
    }
    if (Date.now() > deadline) {
      throw new ExplainedError(
        `another PostgreSQL still serves ${directory.cluster}${pid === undefined ? '' : ` (process ${pid})`} and did not stop: stop it, then try again`,
      );
    }
    await sleep(20);
  }
  rmSync(join(directory.cluster, 'postmaster.pid'), { force: true });
  rmSync(socketPath(directory), { force: true });
  rmSync(`${socketPath(directory)}.lock`, { force: true });
  return stopped ? 'stopped' : found ? 'stale' : 'none';
}

async function isServed(directory: DataDirectory): Promise<boolean> {
  return anyProcessWorksIn(directory.cluster) || (await answers(socketPath(directory)));
}

/** Does anything listen on this unix socket? */
export async function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
  });
}

function anyProcessWorksIn(folder: string): boolean {
  if (!existsSync('/proc/self/cwd')) return false;
  return readdirSync('/proc').some((name) => /^\d+$/.test(name) && worksIn(Number(name), folder));
}

/** A process that is gone, a zombie, or not ours to look at has no readable working directory. */
function worksIn(pid: number, folder: string): boolean {
  try {
    if (existsSync('/proc/self/cwd')) return readlinkSync(`/proc/${pid}/cwd`) === folder;
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
