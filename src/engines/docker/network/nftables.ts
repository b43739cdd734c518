import { closeSync, fstatSync, openSync, readFileSync, statSync } from 'node:fs';
import { sleep } from '../../../lib/sleep.js';
import { StartRefusedError } from '../../../engine/runtime.js';
import { runWithInput } from './run-program.js';

const EXEC_TIMEOUT_MS = 3_000;
const EXEC_POLL_MS = 5;

/**
 * `line`, in the environment, identifies the process: the kernel reuses ids, and a remote engine has others. Throws
 * StartRefusedError.
 */
export async function loadRules(pid: number, line: string, script: string): Promise<void> {
  try {
    await withNamespace(pid, line, async (namespace) => applyRules(namespace, script));
  } catch (error) {
    if (error instanceof StartRefusedError) throw error;
    throw new StartRefusedError(
      'the network rules of the sandbox cannot be loaded; the operator finds the reason in the log of the service',
      { cause: error },
    );
  }
}

/** `namespace`: an open descriptor. */
export async function applyRules(namespace: number, script: string): Promise<void> {
  await runWithInput('nsenter', ['--net=/proc/self/fd/3', 'nft', '-f', '-'], script, [namespace]);
}

/** Calls `act` with the open network namespace of a process of the engine. Throws StartRefusedError. */
export async function withNamespace<Result>(
  pid: number,
  line: string,
  act: (namespace: number) => Promise<Result>,
): Promise<Result> {
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
    return await act(namespace);
  } finally {
    closeSync(namespace);
  }
}

/** Waits: the engine reports the start before the process executes its program. */
export async function hasEnvironmentLine(pid: number, line: string): Promise<boolean> {
  for (const deadline = Date.now() + EXEC_TIMEOUT_MS; ; await sleep(EXEC_POLL_MS)) {
    if (isAliveWith(pid, line)) return true;
    if (Date.now() > deadline) return false;
  }
}

/** Whether the process lives now, and executes its program. */
export function isAliveWith(pid: number, line: string): boolean {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0').includes(line);
  } catch {
    return false;
  }
}
