import type Docker from 'dockerode';
import { INSTANCE_LABEL, SANDBOX_LABEL } from '../container.js';
import { ALREADY_REMOVED, CONFLICT, ignoreStatus, NOT_FOUND, NOT_MODIFIED } from '../errors.js';
import { INIT_PROGRAM } from '../../../guest/programs.js';
import type { GuestInit } from '../guest-init.js';
import type { PublishedPort } from '../../../spec/network-schema.js';
import type { LinkedNamespace } from '../../../machine-network/namespace.js';
import { withNamespace } from './process-namespace.js';
import { startPublished } from '../../../machine-network/published-ports.js';
import { explainPort, portOptions } from './published-ports.js';

/**
 * Owns the network namespace and host name of a sandbox. It outlives runs: the container of the sandbox refers to it.
 */

export const PAUSE_LABEL = 'dev.sandkeep.holder-of';
/** The container runtime itself needs some during the start. */
const PIDS_LIMIT = 32;

export interface PauseContainerOptions {
  instanceId: string;
  sandboxId: string;
  hostname: string;
  network: string;
  init: GuestInit;
  mac?: string | undefined;
  /** An address of the network. Docker takes it only where the operator chose the addresses of the network. */
  ipv4?: string | undefined;
  ports?: readonly PublishedPort[] | undefined;
}

export interface PauseContainer extends LinkedNamespace {
  id: string;
  /** The line of its environment that identifies its process. */
  mark: string;
  hostname: string;
  pid: number;
  startedAt: string;
}

const NAME_START = '/sandkeep-net-';

export function pauseContainerName(sandboxId: string): string {
  return `${NAME_START.slice(1)}${sandboxId}`;
}

export function isPauseName(name: string): boolean {
  return `/${name}`.startsWith(NAME_START);
}

export function isPauseContainer(container: Docker.ContainerInfo): boolean {
  return ownerOf(container) !== undefined;
}

/** The engine may list a container without networks while it changes. */
export function networkNames({
  NetworkSettings,
}: {
  NetworkSettings: { Networks: Readonly<Record<string, unknown>> | null } | null;
}): string[] {
  return Object.keys(NetworkSettings?.Networks ?? {});
}

/**
 * The sandbox that has a pause container, by the name: that of a prepared network changes, and its label does not.
 * Undefined: it is none. An image may bring the label, and a sandbox a similar name, but never without the label of
 * sandboxes.
 */
export function ownerOf({
  Labels,
  Names,
}: Pick<Docker.ContainerInfo, 'Labels' | 'Names'>): string | undefined {
  if (Labels[PAUSE_LABEL] === undefined || Labels[SANDBOX_LABEL] !== undefined) return undefined;
  return Names.find((name) => name.startsWith(NAME_START))?.slice(NAME_START.length);
}

function markOf(owner: string): string {
  return `SANDKEEP_HOLDER_OF=${owner}`;
}

export async function startPauseContainer(docker: Docker, sandboxId: string): Promise<PauseContainer> {
  const container = docker.getContainer(pauseContainerName(sandboxId));
  await startPublished(async () => container.start().catch(ignoreStatus(NOT_MODIFIED)), explainPort);
  return parsePauseContainer(await container.inspect());
}

export function parsePauseContainer({
  Id,
  State,
  Config,
  NetworkSettings,
}: Docker.ContainerInspectInfo): PauseContainer {
  const networks = Object.values(NetworkSettings.Networks);
  const links = networks.flatMap(({ IPAddress, IPPrefixLen, GlobalIPv6Address, GlobalIPv6PrefixLen }) => [
    ...(IPAddress ? [`${IPAddress}/${IPPrefixLen}`] : []),
    ...(GlobalIPv6Address ? [`${GlobalIPv6Address}/${GlobalIPv6PrefixLen}`] : []),
  ]);
  const gateways = networks.flatMap(({ Gateway, IPv6Gateway }) => [Gateway, IPv6Gateway].filter(Boolean));
  const mark = markOf(Config.Labels[PAUSE_LABEL] ?? '');
  return {
    id: Id,
    mark,
    hostname: Config.Hostname,
    pid: State.Pid,
    startedAt: State.StartedAt,
    enter: async (act) => withNamespace(State.Pid, mark, act),
    gateways,
    links,
  };
}

export async function inspectPauseContainer(
  docker: Docker,
  sandboxId: string,
): Promise<Docker.ContainerInspectInfo | undefined> {
  return docker.getContainer(pauseContainerName(sandboxId)).inspect().catch(ignoreStatus(NOT_FOUND));
}

export async function stopPauseContainer(docker: Docker, sandboxId: string): Promise<void> {
  await docker.getContainer(pauseContainerName(sandboxId)).kill().catch(ignoreStatus(NOT_FOUND, CONFLICT));
}

export async function removePauseContainer(docker: Docker, sandboxId: string): Promise<void> {
  await docker
    .getContainer(pauseContainerName(sandboxId))
    .remove({ force: true, v: true })
    .catch(ignoreStatus(...ALREADY_REMOVED));
}

export async function createPauseContainer(options: PauseContainerOptions): Promise<void> {
  const { instanceId, sandboxId, hostname, network, init, mac, ipv4, ports = [] } = options;
  const { exposed, bindings } = portOptions(ports);
  const endpoint = {
    ...(mac === undefined ? {} : { MacAddress: mac }),
    ...(ipv4 === undefined ? {} : { IPAMConfig: { IPv4Address: ipv4 } }),
  };
  await init
    .createContainer({
      name: pauseContainerName(sandboxId),
      Entrypoint: [INIT_PROGRAM],
      Cmd: [],
      User: '65534:65534',
      Hostname: hostname,
      Env: [markOf(sandboxId)],
      Labels: { [INSTANCE_LABEL]: instanceId, [PAUSE_LABEL]: sandboxId },
      StopSignal: 'SIGKILL',
      ExposedPorts: exposed,
      // Engines before version 25 read the first of the two, later ones the second.
      ...(mac === undefined ? {} : { MacAddress: mac }),
      ...(mac === undefined && ipv4 === undefined
        ? {}
        : { NetworkingConfig: { EndpointsConfig: { [network]: endpoint } } }),
      HostConfig: {
        NetworkMode: network,
        PortBindings: bindings,
        CapDrop: ['ALL'],
        SecurityOpt: ['no-new-privileges'],
        ReadonlyRootfs: true,
        PidsLimit: PIDS_LIMIT,
        LogConfig: { Type: 'none', Config: {} },
        RestartPolicy: { Name: 'no' },
      },
    })
    .catch(ignoreStatus(CONFLICT));
}
