import type Docker from 'dockerode';

export type Repair = 'stop_pause_container' | 'remove_pause_container' | 'end_sandbox';

export function neededRepair(
  sandbox: Docker.ContainerInfo | undefined,
  pause: Docker.ContainerInfo | undefined,
): Repair | undefined {
  if (sandbox && isRunning(sandbox)) {
    // The sandbox cannot get a network back.
    const joined = sandbox.HostConfig.NetworkMode.startsWith('container:');
    return joined && !(pause && isRunning(pause)) ? 'end_sandbox' : undefined;
  }
  if (!pause) return undefined;
  if (sandbox) return isRunning(pause) ? 'stop_pause_container' : undefined;
  return 'remove_pause_container';
}

export function isRunning(container: Docker.ContainerInfo | undefined): boolean {
  const State = container?.State;
  return State === 'running' || State === 'paused' || State === 'restarting';
}
