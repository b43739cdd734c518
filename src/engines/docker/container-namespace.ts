import { closeSync, fstatSync, openSync, readFileSync, statSync } from 'node:fs';

/** A running container on this machine. */
export interface ContainerProcess {
  containerId: string;
  /** The number of its process 1. */
  pid: number;
}

/**
 * Calls `act` with an open namespace of the container. Throws where this machine does not show its process, or the
 * service may not open the namespace.
 */
export async function withContainerNamespace<Result>(
  container: ContainerProcess,
  kind: 'net' | 'uts',
  act: (namespace: number) => Result | Promise<Result>,
): Promise<Result> {
  // The descriptor pins the namespace, so the check of the process after it is valid.
  const namespace = openSync(`/proc/${container.pid}/ns/${kind}`, 'r');
  try {
    checkGroup(container);
    if (fstatSync(namespace).ino === statSync(`/proc/self/ns/${kind}`).ino) {
      throw new Error("the sandbox is in the service's own namespace");
    }
    return await act(namespace);
  } finally {
    closeSync(namespace);
  }
}

/** The kernel reuses numbers, and a remote engine has others. A sandbox cannot leave its control group. */
export function checkGroup({ pid, containerId }: ContainerProcess): void {
  if (readFileSync(`/proc/${pid}/cgroup`, 'latin1').includes(containerId)) return;
  throw new Error('the service does not see the processes of the engine');
}
