import type Docker from 'dockerode';
import { closeSync, fstatSync, openSync, readFileSync, statSync } from 'node:fs';
import { runWithInput } from './run-program.js';

/** Sets the host name of a running container, whose prepared network has another one. Process 1 waits for it. */
export async function setHostName(container: Docker.Container, name: string): Promise<void> {
  const { Id, State } = await container.inspect();
  // The descriptor pins the namespace, so the check of the process after it is valid.
  const namespace = State.Running ? openNamespace(State.Pid) : undefined;
  if (namespace === undefined) return;
  try {
    // Its number may be another process by now.
    if (!groupsOf(State.Pid).includes(Id)) return;
    if (fstatSync(namespace).ino === statSync('/proc/self/ns/uts').ino) {
      throw new Error('the container has the host name of the machine');
    }
    await runWithInput(
      'nsenter',
      ['--uts=/proc/self/fd/3', 'sh', '-c', 'cat >/proc/sys/kernel/hostname'],
      name,
      [namespace],
    );
  } finally {
    closeSync(namespace);
  }
}

/** Undefined: the process has ended. */
function openNamespace(pid: number): number | undefined {
  return ifAlive(() => openSync(`/proc/${pid}/ns/uts`, 'r'));
}

function groupsOf(pid: number): string {
  return ifAlive(() => readFileSync(`/proc/${pid}/cgroup`, 'latin1')) ?? '';
}

function ifAlive<Result>(look: () => Result): Result | undefined {
  try {
    return look();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code !== 'ENOENT' && code !== 'ESRCH') throw error;
    return undefined;
  }
}
