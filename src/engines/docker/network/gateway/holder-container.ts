import type Docker from 'dockerode';
import { INIT_PROGRAM } from '../../../../guest/programs.js';
import { INSTANCE_LABEL } from '../../container.js';
import { ALREADY_REMOVED, CONFLICT, ignoreStatus, NOT_MODIFIED, statusOf } from '../../errors.js';
import type { GuestInit } from '../../guest-init.js';
import type { GatewayNamespace } from '../../../../machine-network/namespace.js';
import { isAliveWith, withNamespace } from '../process-namespace.js';

/** Owns the network namespace of the gateway. It lives as long as the sandboxes whose links end in it. */

const GATEWAY_LABEL = 'dev.sandkeep.gateway-of';
/** The container runtime itself needs some during the start. */
const PIDS_LIMIT = 32;

function holderName(instanceId: string): string {
  return `sandkeep-gateway-${instanceId}`;
}

/** Checks the name too: users may set the label. */
export function isGatewayHolder({ Labels, Names }: Docker.ContainerInfo): boolean {
  const instanceId = Labels[GATEWAY_LABEL];
  return instanceId !== undefined && Names.includes(`/${holderName(instanceId)}`);
}

function holderLine(instanceId: string): string {
  return `SANDKEEP_GATEWAY_OF=${instanceId}`;
}

interface HolderOptions {
  instanceId: string;
  network: string;
  init: GuestInit;
}

/** Creates it where it is missing, and starts it where it does not run. */
export async function ensureHolder(docker: Docker, options: HolderOptions): Promise<GatewayNamespace> {
  try {
    const found = await startHolder(docker, options);
    if (found.network === options.network) return found;
  } catch (error) {
    // An engine that does not answer says nothing of a holder in which links of running sandboxes end.
    if (statusOf(error) === undefined) throw error;
    // Its network was removed, or an earlier release made it in another way.
  }
  await removeHolder(docker, options.instanceId);
  return startHolder(docker, options);
}

async function startHolder(
  docker: Docker,
  { instanceId, network, init }: HolderOptions,
): Promise<GatewayNamespace & { network: string | undefined }> {
  await init
    .createContainer({
      name: holderName(instanceId),
      Entrypoint: [INIT_PROGRAM],
      Cmd: [],
      User: '65534:65534',
      Hostname: 'gateway',
      Env: [holderLine(instanceId)],
      Labels: { [INSTANCE_LABEL]: instanceId, [GATEWAY_LABEL]: instanceId },
      StopSignal: 'SIGKILL',
      HostConfig: {
        NetworkMode: network,
        CapDrop: ['ALL'],
        SecurityOpt: ['no-new-privileges'],
        ReadonlyRootfs: true,
        PidsLimit: PIDS_LIMIT,
        // The service may lack the right to listen on port 53.
        Sysctls: { 'net.ipv4.ip_unprivileged_port_start': '0' },
        LogConfig: { Type: 'none', Config: {} },
        RestartPolicy: { Name: 'no' },
      },
    })
    .catch(ignoreStatus(CONFLICT));
  const line = holderLine(instanceId);
  const container = docker.getContainer(holderName(instanceId));
  await container.start().catch(ignoreStatus(NOT_MODIFIED));
  const { State, HostConfig, NetworkSettings } = await container.inspect();
  const networks = Object.values(NetworkSettings.Networks);
  return {
    network: HostConfig.NetworkMode,
    key: `${State.Pid} ${State.StartedAt}`,
    isAlive: () => isAliveWith(State.Pid, line),
    enter: async (act) => withNamespace(State.Pid, line, act),
    gateways: networks.map(({ Gateway }) => Gateway).filter(Boolean),
    links: networks.flatMap(({ IPAddress, IPPrefixLen }) =>
      IPAddress ? [`${IPAddress}/${IPPrefixLen}`] : [],
    ),
  };
}

export async function removeHolder(docker: Docker, instanceId: string): Promise<void> {
  await docker
    .getContainer(holderName(instanceId))
    .remove({ force: true, v: true })
    .catch(ignoreStatus(...ALREADY_REMOVED));
}
