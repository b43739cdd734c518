import type Docker from 'dockerode';
import { withContainerNamespace } from '../container-namespace.js';
import { runWithInput } from '../../../machine-network/run-program.js';

/**
 * Sets the host name of a running container, whose prepared network has another one. Process 1 waits for it. Throws
 * also where the container has ended.
 */
export async function setHostName(container: Docker.Container, name: string): Promise<void> {
  const { Id, State } = await container.inspect();
  await withContainerNamespace({ containerId: Id, pid: State.Pid }, 'uts', async (namespace) => {
    const write = ['sh', '-c', 'cat >/proc/sys/kernel/hostname'];
    await runWithInput('nsenter', ['--uts=/proc/self/fd/3', ...write], name, [namespace]);
  });
}
