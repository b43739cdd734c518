import { existsSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { ExplainedError } from '../../lib/explained-error.js';
import { sleep } from '../../lib/sleep.js';
import type { DataDirectory } from './directory.js';

/** The time in which an orphaned server writes a checkpoint and exits. */
const LEAVE_TIMEOUT_MS = 30_000;

export function socketPath(directory: DataDirectory): string {
  return join(directory.run, '.s.PGSQL.5432');
}

/** Undefined when the file is missing or incomplete. */
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
 * Stops the server of a killed predecessor, or removes its files. Only the owner of the directory may call it.
 *
 * With a stale pid file PostgreSQL refuses to start when another process, or a zombie, has the pid. So the test does
 * not trust the pid: no process of the cluster lives, and its socket refuses connections, which also covers other
 * containers.
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
      // "fast": PostgreSQL ends sessions, writes a checkpoint and exits.
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

/** True when the unix socket accepts connections, even of a busy or hung process. */
export async function answers(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    // Other errors, such as a full queue, come from live sockets.
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
 * True for a live process of the cluster. The command lines of the postmaster and of its shells name the cluster, and
 * every user may read them. The postmaster's children have it as their working directory. A root without CAP_SYS_PTRACE
 * cannot read that, but PostgreSQL refuses to start beside such a child.
 */
function isOf(cluster: string, pid: number): boolean {
  try {
    if (!HAS_PROC) return process.kill(pid, 0);
    if (isInsideContainer(pid)) return false;
    const isNamed =
      readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(`\0-D\0${cluster}\0`) ||
      (readFileSync(`/proc/${pid}/comm`, 'utf8') === 'postgres\n' &&
        readlinkSync(`/proc/${pid}/cwd`) === cluster);
    return isNamed && !hasOtherDirectory(cluster, pid);
  } catch {
    return false;
  }
}

/**
 * True in a PID namespace below this one. To read the command line waits for a lock that a hostile sandbox can hold.
 */
function isInsideContainer(pid: number): boolean {
  return /^NSpid:\t\d+\t/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
}

/** True when the path is another directory for the process, as in a container. Without the right to look: false. */
function hasOtherDirectory(cluster: string, pid: number): boolean {
  try {
    const [own, other] = [statSync(cluster), statSync(`/proc/${pid}/root${cluster}`)];
    return own.dev !== other.dev || own.ino !== other.ino;
  } catch {
    return false;
  }
}
