import type Docker from 'dockerode';
import { INSTANCE_LABEL } from '../container.js';
import { ignoreStatus } from '../errors.js';
import { INIT_PROGRAM, type GuestInit } from '../guest-init.js';

/**
 * The pause container of a sandbox: a container that does nothing but own the network namespace and the host name that the sandbox's container joins. It is there before the sandbox and kept between runs, as the engine
 * remembers in the sandbox's container which one it joined.
 */

/** Says whose pause container it is. Containers with it are no sandboxes. */
export const PAUSE_LABEL = 'dev.sandkeep.holder-of';
/** The container runtime itself needs a few while it starts the program. */
const PIDS_LIMIT = 32;

export interface PauseContainerOptions {
  instanceId: string;
  sandboxId: string;
  hostname: string;
  /** Of the Docker network. */
  network: string;
  init: GuestInit;
}

/** A pause container that runs, and where it stands. */
export interface PauseContainer {
  id: string;
  pid: number;
  /** As the engine wrote it: differs when it was started again. */
  startedAt: string;
  gateways: string[];
  /** CIDR blocks of its link. */
  links: string[];
}

export function pauseContainerName(sandboxId: string): string {
  return `sandkeep-net-${sandboxId}`;
}

/** Is this container a pause container? By its label and its name: nothing but a pause container has both. */
export function isPauseContainer({ Labels, Names }: Docker.ContainerInfo): boolean {
  const sandboxId = Labels[PAUSE_LABEL];
  return sandboxId !== undefined && Names.includes(`/${pauseContainerName(sandboxId)}`);
}

/** A line of its environment by which its process is known. */
export function environmentLineOf(sandboxId: string): string {
  return `SANDKEEP_HOLDER_OF=${sandboxId}`;
}

/** Starts a pause container that was made, and finds out where it stands. One that runs already is no error. */
export async function startPauseContainer(docker: Docker, sandboxId: string): Promise<PauseContainer> {
  const container = docker.getContainer(pauseContainerName(sandboxId));
  // Not modified: it runs.
  await container.start().catch(ignoreStatus(304));
  return parsePauseContainer(await container.inspect());
}

export function parsePauseContainer({
  Id,
  State,
  NetworkSettings,
}: Docker.ContainerInspectInfo): PauseContainer {
  const networks = Object.values(NetworkSettings.Networks);
  const links = networks.flatMap(({ IPAddress, IPPrefixLen, GlobalIPv6Address, GlobalIPv6PrefixLen }) => [
    ...(IPAddress ? [`${IPAddress}/${IPPrefixLen}`] : []),
    ...(GlobalIPv6Address ? [`${GlobalIPv6Address}/${GlobalIPv6PrefixLen}`] : []),
  ]);
  const gateways = networks.flatMap(({ Gateway, IPv6Gateway }) => [Gateway, IPv6Gateway].filter(Boolean));
  return { id: Id, pid: State.Pid, startedAt: State.StartedAt, gateways, links };
}

export async function inspectPauseContainer(
  docker: Docker,
  sandboxId: string,
): Promise<Docker.ContainerInspectInfo | undefined> {
  return docker.getContainer(pauseContainerName(sandboxId)).inspect().catch(ignoreStatus(404));
}

export async function stopPauseContainer(docker: Docker, sandboxId: string): Promise<void> {
  // It has nothing to put in order. Conflict: it does not run.
  await docker.getContainer(pauseContainerName(sandboxId)).kill().catch(ignoreStatus(404, 409));
}

export async function removePauseContainer(docker: Docker, sandboxId: string): Promise<void> {
  // Conflict: the engine is removing it already.
  await docker
    .getContainer(pauseContainerName(sandboxId))
    .remove({ force: true, v: true })
    .catch(ignoreStatus(404, 409));
}

export async function createPauseContainer(docker: Docker, options: PauseContainerOptions): Promise<void> {
  const { instanceId, sandboxId, hostname, network, init } = options;
  await init.ensureImage();
  await docker
    .createContainer({
      name: pauseContainerName(sandboxId),
      Image: init.image,
      Entrypoint: [INIT_PROGRAM],
      Cmd: [],
      User: '65534:65534',
      Hostname: hostname,
      Env: [environmentLineOf(sandboxId)],
      Labels: { [INSTANCE_LABEL]: instanceId, [PAUSE_LABEL]: sandboxId },
      // There is nothing in it that would need time to end.
      StopSignal: 'SIGKILL',
      HostConfig: {
        NetworkMode: network,
        CapDrop: ['ALL'],
        SecurityOpt: ['no-new-privileges'],
        ReadonlyRootfs: true,
        PidsLimit: PIDS_LIMIT,
        LogConfig: { Type: 'none', Config: {} },
        RestartPolicy: { Name: 'no' },
      },
    })
    // Conflict: made by a predecessor that was killed before it could read the answer.
    .catch(ignoreStatus(409));
}
