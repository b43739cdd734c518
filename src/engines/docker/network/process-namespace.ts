import { closeSync, fstatSync, openSync, readFileSync, statSync } from 'node:fs';
import { StartRefusedError } from '../../../engine/runtime.js';
import { sleep } from '../../../lib/sleep.js';

const EXEC_TIMEOUT_MS = 3_000;
const EXEC_POLL_MS = 5;

/**
 * Calls `act` with the open network namespace of a process of the engine. `line`, in the environment, identifies the
 * process: the kernel reuses ids, and a remote engine has others. Throws StartRefusedError.
 */
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
