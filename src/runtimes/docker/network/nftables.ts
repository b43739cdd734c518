import { spawn } from 'node:child_process';
import { closeSync, fstatSync, openSync, readFileSync, statSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { sleep } from '../../../lib/sleep.js';
import { StartRefusedError } from '../../runtime.js';
import { compilePolicy } from './compile-policy.js';
import { PUBLIC_PROFILE } from './public-profile.js';

/** Puts rules into the network namespaces of containers with `nsenter` and `nft`, which every distribution has. */

/** Long enough for a machine under load; neither program waits for anything. */
const TIMEOUT_MS = 10_000;
const MARK_TIMEOUT_MS = 3_000;
const MARK_POLL_MS = 5;

/** Why this process cannot make rules; undefined when it can. Tries it, in a network namespace of nobody's. */
export async function explainNoNftables(): Promise<string | undefined> {
  if (process.platform !== 'linux') return 'only on Linux can it be filtered';
  if (process.getuid?.() !== 0) return 'the service does not run as root, which filtering it needs';
  for (const [program, debianPackage] of [
    ['nft', 'nftables'],
    ['nsenter', 'util-linux'],
  ] as const) {
    if (!(await runs(program)))
      return `there is no ${program} to filter it with (on Debian: apt-get install ${debianPackage})`;
  }
  try {
    const nowhere = { hosts: [], resolvers: [], neighbours: [], lifted: [] };
    await runWithInput('unshare', ['--net', 'nft', '-f', '-'], compilePolicy(PUBLIC_PROFILE, nowhere));
    return undefined;
  } catch (error) {
    return `nftables does not work on this machine (${(error as Error).message})`;
  }
}

/**
 * Gives the network namespace of a process its rules, in place of earlier ones. `mark`: a line of the process's
 * environment. It proves that the process is the one that the engine means: an engine elsewhere counts its processes
 * differently, and an id is given anew when its process has ended.
 *
 * Throws StartRefusedError when that cannot be done.
 */
export async function loadRules(pid: number, mark: string, script: string): Promise<void> {
  // What was opened stays the same namespace whatever becomes of the process, so it is opened first and checked then.
  const namespace = openSync(`/proc/${pid}/ns/net`, 'r');
  try {
    if (!(await hasEnvironmentLine(pid, mark))) {
      throw new StartRefusedError('the engine runs its containers out of sight of the service');
    }
    if (fstatSync(namespace).ino === statSync('/proc/self/ns/net').ino) {
      throw new StartRefusedError("the sandbox would be in the service's own network namespace");
    }
    await runWithInput('nsenter', ['--net=/proc/self/fd/3', 'nft', '-f', '-'], script, namespace);
  } catch (error) {
    if (error instanceof StartRefusedError) throw error;
    throw new StartRefusedError(`the rules of its network were not taken: ${(error as Error).message}`, {
      cause: error,
    });
  } finally {
    closeSync(namespace);
  }
}

/**
 * Is this the process that was started with this line in its environment? The engine says "started" a moment before the
 * process has become the program it was started for: it is given a little time.
 */
export async function hasEnvironmentLine(pid: number, mark: string): Promise<boolean> {
  for (const deadline = Date.now() + MARK_TIMEOUT_MS; ; await sleep(MARK_POLL_MS)) {
    if (environmentLinesOf(pid).includes(mark)) return true;
    if (Date.now() > deadline) return false;
  }
}

function environmentLinesOf(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0');
  } catch {
    return [];
  }
}

async function runs(program: string): Promise<boolean> {
  return runWithInput(program, ['--version'], '').then(
    () => true,
    (error: NodeJS.ErrnoException) => error.code !== 'ENOENT',
  );
}

/** Runs a program on an input. Rejects with its first complaint unless it ends well. */
async function runWithInput(program: string, args: string[], input: string, extra?: number): Promise<void> {
  const child = spawn(program, args, {
    stdio: ['pipe', 'ignore', 'pipe', ...(extra === undefined ? [] : [extra])],
    timeout: TIMEOUT_MS,
    killSignal: 'SIGKILL',
  });
  const ended = new Promise<string>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) =>
      resolve(code === 0 ? '' : `${program} ended with ${code ?? signal}`),
    );
  });
  // A program that does not read to the end says why itself.
  child.stdin!.on('error', () => undefined);
  child.stdin!.end(input);
  const [failure, complaint] = await Promise.all([ended, text(child.stderr!)]);
  if (failure !== '') throw new Error(complaint.trim().split('\n')[0] || failure);
}
