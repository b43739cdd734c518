import type Docker from 'dockerode';
import { INSTANCE_LABEL } from '../container.js';
import { unless } from '../errors.js';
import { INIT_PROGRAM, type GuestInit } from '../init.js';

/**
 * The holder of a sandbox: a container that does nothing but own the network namespace and the host name that the sandbox's container joins. It is there before the sandbox and kept between runs, as the engine
 * remembers in the sandbox's container which one it joined.
 */

/** Says whose holder it is. Containers with it are no sandboxes. */
export const HOLDER_LABEL = 'dev.sandkeep.holder-of';
/** The container runtime itself needs a few while it starts the program. */
const PIDS_LIMIT = 32;

export interface HolderOptions {
  instanceId: string;
  sandboxId: string;
  hostname: string;
  /** Of the Docker network. */
  network: string;
  init: GuestInit;
}

/** A holder that runs, and where it stands. */
export interface Holder {
  id: string;
  pid: number;
  /** As the engine wrote it: differs when it was started again. */
  startedAt: string;
  gateways: string[];
  /** CIDR blocks of its link. */
  links: string[];
}

export function holderName(sandboxId: string): string {
  return `sandkeep-net-${sandboxId}`;
}

/** Is this container a holder? By its label and its name: nothing but a holder has both. */
export function isHolder({ Labels, Names }: Docker.ContainerInfo): boolean {
  const sandboxId = Labels[HOLDER_LABEL];
  return sandboxId !== undefined && Names.includes(`/${holderName(sandboxId)}`);
}

/** A line of its environment by which its process is known. */
export function markOf(sandboxId: string): string {
  return `SANDKEEP_HOLDER_OF=${sandboxId}`;
}

/** Starts a holder that was made, and finds out where it stands. One that runs already is no error. */
export async function startHolder(docker: Docker, sandboxId: string): Promise<Holder> {
  const container = docker.getContainer(holderName(sandboxId));
  // Not modified: it runs.
  await container.start().catch(unless(304));
  return readHolder(await container.inspect());
}

export function readHolder({ Id, State, NetworkSettings }: Docker.ContainerInspectInfo): Holder {
  const networks = Object.values(NetworkSettings.Networks);
  const links = networks.flatMap(({ IPAddress, IPPrefixLen, GlobalIPv6Address, GlobalIPv6PrefixLen }) => [
    ...(IPAddress ? [`${IPAddress}/${IPPrefixLen}`] : []),
    ...(GlobalIPv6Address ? [`${GlobalIPv6Address}/${GlobalIPv6PrefixLen}`] : []),
  ]);
  const gateways = networks.flatMap(({ Gateway, IPv6Gateway }) => [Gateway, IPv6Gateway].filter(Boolean));
  return { id: Id, pid: State.Pid, startedAt: State.StartedAt, gateways, links };
}

export async function inspectHolder(
  docker: Docker,
  sandboxId: string,
): Promise<Docker.ContainerInspectInfo | undefined> {
  return docker.getContainer(holderName(sandboxId)).inspect().catch(unless(404));
}

export async function stopHolder(docker: Docker, sandboxId: string): Promise<void> {
  // It has nothing to put in order. Conflict: it does not run.
  await docker.getContainer(holderName(sandboxId)).kill().catch(unless(404, 409));
}

export async function removeHolder(docker: Docker, sandboxId: string): Promise<void> {
  // Conflict: the engine is removing it already.
  await docker.getContainer(holderName(sandboxId)).remove({ force: true, v: true }).catch(unless(404, 409));
}

export async function createHolder(docker: Docker, options: HolderOptions): Promise<void> {
  const { instanceId, sandboxId, hostname, network, init } = options;
  await init.ensureImage();
  await docker
    .createContainer({
      name: holderName(sandboxId),
      Image: init.image,
      Entrypoint: [INIT_PROGRAM],
      Cmd: [],
      User: '65534:65534',
      Hostname: hostname,
      Env: [markOf(sandboxId)],
      Labels: { [INSTANCE_LABEL]: instanceId, [HOLDER_LABEL]: sandboxId },
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
    .catch(unless(409));
}
