import type Docker from 'dockerode';
import { randomUUID } from 'node:crypto';
import { engineMessage, statusOf } from '../errors.js';
import type { GuestInit } from '../guest-init.js';
import {
  createPauseContainer,
  environmentLineOf,
  removePauseContainer,
  startPauseContainer,
} from './pause-container.js';
import type { GuardedGroup } from './compile-policy.js';
import { hasEnvironmentLine, explainNoNftables } from './nftables.js';

export interface NetworkOptions {
  instanceId: string;
  /** A bridge network of the engine; `none` for no network. One of our own unless said. */
  name: string | undefined;
  /** Who resolves names for the sandboxes; those of the machine unless said. */
  resolvers: readonly string[] | undefined;
  /** What the policies of sandboxes may open all the same. */
  lifted: readonly GuardedGroup[];
  /** Why no files of ours can be mounted in a sandbox; undefined when they can. */
  unmountable: string | undefined;
  init: GuestInit;
  /** Do processes run on the machine's own kernel, whose network stack asks the rules? */
  sharesKernel: boolean;
}

/** Why sandboxes can have no network whose rules are enforced. */
export async function explainNoNetwork(docker: Docker, options: NetworkOptions): Promise<string | undefined> {
  const { name, sharesKernel, unmountable } = options;
  if (name === 'none') return 'the operator wants none';
  if (!sharesKernel)
    return "the runtime class has a network stack of its own, which does not ask the kernel's rules";
  if (name !== undefined) {
    const driver = await driverOf(docker, name);
    if (driver !== 'bridge') {
      return driver === undefined ? `there is no Docker network ${name}` : `${name} is not a bridge network`;
    }
  }
  const noRules = await explainNoNftables();
  if (noRules !== undefined) return noRules;
  if (unmountable !== undefined) return `sandboxes cannot be told who resolves names: ${unmountable}`;
  return explainInvisible(docker, options);
}

async function driverOf(docker: Docker, name: string): Promise<string | undefined> {
  try {
    return ((await docker.getNetwork(name).inspect()) as { Driver: string }).Driver;
  } catch (error) {
    if (statusOf(error) === 404) return undefined;
    throw error;
  }
}

/** Are the engine's processes ours to see? Tried with a pause container of nobody's. */
async function explainInvisible(
  docker: Docker,
  { instanceId, init }: NetworkOptions,
): Promise<string | undefined> {
  const sandboxId = randomUUID();
  const attempt = { instanceId, init, sandboxId, hostname: 'probe', network: 'none' };
  try {
    await createPauseContainer(docker, attempt);
    const { pid } = await startPauseContainer(docker, sandboxId);
    return (await hasEnvironmentLine(pid, environmentLineOf(sandboxId)))
      ? undefined
      : 'the engine runs its containers out of sight of the service';
  } catch (error) {
    return `what would hold it does not start (${engineMessage(error)})`;
  } finally {
    await removePauseContainer(docker, sandboxId);
  }
}
