import type Docker from 'dockerode';
import { randomUUID } from 'node:crypto';
import { engineMessage, NOT_FOUND, statusOf } from '../errors.js';
import type { GatewayServices } from '../../../engine/definition.js';
import type { GuestInit } from '../guest-init.js';
import type { GuardedGroup } from '../../../network-policy/guarded-groups.js';
import { explainNoNftables } from '../../../machine-network/nftables-probe.js';
import { createPauseContainer, removePauseContainer, startPauseContainer } from './pause-container.js';
import { hasEnvironmentLine } from './process-namespace.js';

export interface NetworkOptions {
  instanceId: string;
  name: string | undefined;
  resolvers: readonly string[] | undefined;
  openableGroups: readonly GuardedGroup[];
  bandwidthMbits: number;
  /** On one bridge of the installation's own. Default: SANDBOXES_PER_BRIDGE. */
  sandboxesPerBridge?: number | undefined;
  /** Pause containers that wait for sandboxes. */
  preparedNetworks?: number | undefined;
  gateway: GatewayServices | undefined;
  unmountable: string | undefined;
  init: GuestInit;
  sharesKernel: boolean;
}

/** Returns the reason why sandboxes cannot have a filtered network. */
export async function explainNoNetwork(docker: Docker, options: NetworkOptions): Promise<string | undefined> {
  const { name, sharesKernel, unmountable } = options;
  if (name === 'none') return 'the operator disabled it';
  if (!sharesKernel)
    return 'the runtime class has its own network stack, which ignores the rules of the kernel';
  if (name !== undefined) {
    const driver = await driverOf(docker, name);
    if (driver !== 'bridge') {
      return driver === undefined ? `there is no Docker network ${name}` : `${name} is not a bridge network`;
    }
  }
  const noRules = await explainNoNftables();
  if (noRules !== undefined) return noRules;
  if (unmountable !== undefined) return `the resolvers of sandboxes cannot be set: ${unmountable}`;
  return explainInvisible(docker, options);
}

async function driverOf(docker: Docker, name: string): Promise<string | undefined> {
  try {
    return ((await docker.getNetwork(name).inspect()) as { Driver: string }).Driver;
  } catch (error) {
    if (statusOf(error) === NOT_FOUND) return undefined;
    throw error;
  }
}

/** Finds an engine whose processes this process does not see. */
async function explainInvisible(
  docker: Docker,
  { instanceId, init }: NetworkOptions,
): Promise<string | undefined> {
  const sandboxId = randomUUID();
  const attempt = { instanceId, init, sandboxId, hostname: 'probe', network: 'none' };
  try {
    await createPauseContainer(attempt);
    const { pid, mark } = await startPauseContainer(docker, sandboxId);
    return (await hasEnvironmentLine(pid, mark))
      ? undefined
      : 'the service does not see the processes of the engine: run both on one machine, in one process namespace';
  } catch (error) {
    return `the pause container does not start (${engineMessage(error)})`;
  } finally {
    await removePauseContainer(docker, sandboxId);
  }
}
