import { spawn } from 'node:child_process';
import { closeSync, fstatSync, openSync, readFileSync, statSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { sleep } from '../../../lib/sleep.js';
import { StartRefusedError } from '../../../engine/runtime.js';
import { compilePolicy } from './compile-policy.js';
import { PUBLIC_PROFILE } from '../../../network-policy/public-profile.js';

/** For a loaded machine: neither program waits. */
const TIMEOUT_MS = 10_000;
const EXEC_TIMEOUT_MS = 3_000;
const EXEC_POLL_MS = 5;

export async function explainNoNftables(): Promise<string | undefined> {
  if (process.platform !== 'linux') return 'network filtering requires Linux';
  if (process.getuid?.() !== 0) return 'network filtering requires the service to run as root';
  for (const [program, debianPackage] of [
    ['nft', 'nftables'],
    ['nsenter', 'util-linux'],
  ] as const) {
    if (!(await runs(program)))
      return `the program ${program} is missing (on Debian: apt-get install ${debianPackage})`;
  }
  try {
    const none = { hosts: [], resolvers: [], neighbours: [], openableGroups: [] };
    await runWithInput(
      'unshare',
      ['--net', 'nft', '-f', '-'],
      compilePolicy(PUBLIC_PROFILE, { ...none, bandwidthMbits: 1 }),
    );
    return undefined;
  } catch (error) {
    return `nftables does not work on this machine (${(error as Error).message})`;
  }
}

/**
 * `line`, in the environment, identifies the process: the kernel reuses ids, and a remote engine has others. Throws
 * StartRefusedError.
 */
export async function loadRules(pid: number, line: string, script: string): Promise<void> {
  // The descriptor pins the namespace, so the check of the process after it is valid.
  const namespace = openSync(`/proc/${pid}/ns/net`, 'r');
  try {
    if (!(await hasEnvironmentLine(pid, line))) {
      throw new StartRefusedError(
        'the service does not see the processes of the engine: run both on one machine, in one process namespace',
      );
    }
    if (fstatSync(namespace).ino === statSync('/proc/self/ns/net').ino) {
      throw new StartRefusedError("the sandbox would be in the service's own network namespace");
    }
    await runWithInput('nsenter', ['--net=/proc/self/fd/3', 'nft', '-f', '-'], script, namespace);
  } catch (error) {
    if (error instanceof StartRefusedError) throw error;
    throw new StartRefusedError(
      'the network rules of the sandbox cannot be loaded; the operator finds the reason in the log of the service',
      { cause: error },
    );
  } finally {
    closeSync(namespace);
  }
}

/** Waits: the engine reports the start before the process executes its program. */
export async function hasEnvironmentLine(pid: number, line: string): Promise<boolean> {
  for (const deadline = Date.now() + EXEC_TIMEOUT_MS; ; await sleep(EXEC_POLL_MS)) {
    if (environmentLinesOf(pid).includes(line)) return true;
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
  // The error output of the program has the cause.
  child.stdin!.on('error', () => undefined);
  child.stdin!.end(input);
  const [failure, complaint] = await Promise.all([ended, text(child.stderr!)]);
  if (failure !== '') throw new Error(complaint.trim().split('\n')[0] || failure);
}
