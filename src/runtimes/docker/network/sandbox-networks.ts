import type Docker from 'dockerode';
import { isIPv4 } from 'node:net';
import { StartRefusedError, type Capability, type Run } from '../../runtime.js';
import { INSTANCE_LABEL, SANDBOX_LABEL } from '../container.js';
import { statusOf } from '../errors.js';
import type { Names } from '../files/resolver-files.js';
import {
  createPauseContainer,
  PAUSE_LABEL,
  pauseContainerName,
  inspectPauseContainer,
  isPauseContainer,
  environmentLineOf,
  parsePauseContainer,
  removePauseContainer,
  startPauseContainer,
  stopPauseContainer,
  type PauseContainer,
} from './pause-container.js';
import { hostAddresses, systemResolvers } from './host-addresses.js';
import { compilePolicy } from './compile-policy.js';
import { PUBLIC_PROFILE } from './public-profile.js';
import { explainNoNetwork, type NetworkOptions } from './network-probe.js';
import { loadRules } from './nftables.js';

/** Another process may be starting the sandbox of a younger pause container. */
const ORPHAN_SECS = 30;

interface Joined {
  /** The network mode of the engine. */
  mode: string;
  names: Names;
}

type Work = 'stop_pause_container' | 'remove_pause_container' | 'end_sandbox';

/**
 * Each sandbox has a network namespace on one bridge. It has its rules before the sandbox runs, and the sandbox cannot
 * change them. See docs/decisions/0012.
 */
export class SandboxNetworks {
  /** Sandboxes that are being started or removed: `tidy` skips them. */
  private readonly claimed = new Set<string>();
  private readonly tidying = new Map<string, Promise<void>>();
  private readonly opened = new Map<string, PauseContainer>();
  private making: Promise<void> | undefined;

  private constructor(
    private readonly docker: Docker,
    private readonly options: NetworkOptions,
    /** The reason why sandboxes have no network. */
    private readonly lack: string | undefined,
  ) {}

  get capabilities(): Capability[] {
    if (this.lack !== undefined) return [];
    return ['network_policy', ...this.options.lifted.map((group) => `network_${group}` as const)];
  }

  /** For the operator, after "network: ". */
  get description(): string {
    if (this.lack !== undefined) return `NONE, because ${this.lack}`;
    return `${this.options.name ?? 'a bridge of its own'}, filtered in each sandbox`;
  }

  static async open(docker: Docker, options: NetworkOptions): Promise<SandboxNetworks> {
    return new SandboxNetworks(docker, options, await explainNoNetwork(docker, options));
  }

  /** Excludes `tidy` from a sandbox until the returned function is called. */
  async claim(sandboxId: string): Promise<() => void> {
    this.claimed.add(sandboxId);
    await this.tidying.get(sandboxId);
    return () => void this.claimed.delete(sandboxId);
  }

  /**
   * Creates the network of a sandbox with its rules. `existing`: its container, whose network mode is fixed. Throws
   * StartRefusedError; no network is ever left unfiltered.
   */
  async join({ sandboxId, spec }: Run, made: Docker.Container | undefined): Promise<Joined> {
    const hostname = spec.hostname ?? sandboxId;
    const nowhere = { mode: 'none', names: { hostname, addresses: [], resolvers: [] } };
    const mode = made && (await made.inspect()).HostConfig.NetworkMode;
    if (mode === 'none' || (mode === undefined && !spec.networkEnabled)) return nowhere;
    if (mode !== undefined && !mode.startsWith('container:')) {
      throw new StartRefusedError(
        `the sandbox has the unfiltered network ${mode}: delete it and create it again`,
      );
    }
    if (this.lack !== undefined) {
      // Without a policy, no network is the strictest answer.
      if (mode === undefined && spec.networkPolicy == null) return nowhere;
      throw new StartRefusedError(`the sandbox cannot have its network: ${this.lack}`);
    }
    const { docker, options } = this;
    const found = await inspectPauseContainer(docker, sandboxId);
    if (mode !== undefined && mode !== `container:${found?.Id}`) {
      throw new StartRefusedError(
        'the network of the sandbox was removed: delete the sandbox and create it again',
      );
    }
    const resolvers = options.resolvers ?? systemResolvers();
    if (!found) {
      const network = options.name ?? (await this.ensureNetwork());
      await createPauseContainer(docker, { ...options, sandboxId, hostname, network });
    }
    const pause = await this.startPause(sandboxId);
    const rules = compilePolicy(spec.networkPolicy ?? PUBLIC_PROFILE, {
      hosts: [...hostAddresses(), ...pause.gateways],
      resolvers,
      neighbours: pause.links,
      lifted: options.lifted,
    });
    await loadRules(pause.pid, environmentLineOf(sandboxId), rules);
    this.opened.set(sandboxId, pause);
    return {
      mode: `container:${pause.id}`,
      names: {
        hostname,
        addresses: pause.links.map((link) => link.split('/')[0]!),
        // IPv4 only: a sandbox without IPv6 would wait for the others.
        resolvers: resolvers.filter(isIPv4),
      },
    };
  }

  /**
   * Checks after the start that the sandbox joined the namespace with the rules, as the pause container may have been
   * restarted. Otherwise it kills the sandbox and throws StartRefusedError.
   */
  async confirm({ sandboxId }: Run, container: Docker.Container): Promise<void> {
    const expected = this.opened.get(sandboxId);
    if (!expected) return;
    this.opened.delete(sandboxId);
    const found = await inspectPauseContainer(this.docker, sandboxId);
    const pause = found && parsePauseContainer(found);
    if (pause?.pid === expected.pid && pause.startedAt === expected.startedAt) return;
    await container.kill().catch(() => undefined);
    throw new StartRefusedError('the network of the sandbox ended during the start: start the sandbox again');
  }

  /** Idempotent. */
  async remove(sandboxId: string): Promise<void> {
    await removePauseContainer(this.docker, sandboxId);
  }

  /**
   * Starts to repair, from a list of all containers, what crashes or other programs left. Also stops the pause
   * containers of ended sandboxes.
   */
  tidy(containers: readonly Docker.ContainerInfo[]): void {
    const sandboxes = new Map(containers.map((container) => [container.Labels[SANDBOX_LABEL], container]));
    const pauses = new Map(
      containers.filter(isPauseContainer).map((container) => [container.Labels[PAUSE_LABEL], container]),
    );
    for (const sandboxId of new Set([...sandboxes.keys(), ...pauses.keys()])) {
      if (sandboxId === undefined || this.claimed.has(sandboxId) || this.tidying.has(sandboxId)) continue;
      if (leftOver(sandboxes.get(sandboxId), pauses.get(sandboxId)) === undefined) continue;
      const work = this.tidyOne(sandboxId)
        // The next list retries.
        .catch(() => undefined)
        .finally(() => this.tidying.delete(sandboxId));
      this.tidying.set(sandboxId, work);
    }
  }

  /** Waits for `tidy`. Removes the bridge if no pause container needs it. */
  async close(): Promise<void> {
    await Promise.all(this.tidying.values());
    if (this.lack !== undefined || this.options.name !== undefined) return;
    const filters = { label: [`${INSTANCE_LABEL}=${this.options.instanceId}`, PAUSE_LABEL] };
    try {
      if ((await this.docker.listContainers({ all: true, filters })).length > 0) return;
      await this.docker.getNetwork(this.ownNetwork).remove();
    } catch {
      // The bridge does not exist, or the engine is gone. A remaining bridge is used again.
    }
  }

  /** Lists again: the first list may be older than the latest start. */
  private async tidyOne(sandboxId: string): Promise<void> {
    const [sandbox, pause] = await Promise.all(
      [SANDBOX_LABEL, PAUSE_LABEL].map(async (label) => {
        const ours = `${INSTANCE_LABEL}=${this.options.instanceId}`;
        const filters = { label: [ours, `${label}=${sandboxId}`] };
        const found = await this.docker.listContainers({ all: true, filters });
        return found.find((container) => isPauseContainer(container) === (label === PAUSE_LABEL));
      }),
    );
    switch (leftOver(sandbox, pause)) {
      case 'stop_pause_container':
        return stopPauseContainer(this.docker, sandboxId);
      case 'remove_pause_container':
        return removePauseContainer(this.docker, sandboxId);
      case 'end_sandbox':
        await this.docker.getContainer(sandbox!.Id).kill();
        return;
      case undefined:
        return;
    }
  }

  private get ownNetwork(): string {
    return `sandkeep-${this.options.instanceId}`;
  }

  private async startPause(sandboxId: string): Promise<PauseContainer> {
    try {
      return await startPauseContainer(this.docker, sandboxId);
    } catch (error) {
      // The engine removes a network that only stopped containers use when somebody prunes networks.
      if (statusOf(error) !== 404 || this.options.name !== undefined) throw error;
      const network = this.docker.getNetwork(await this.ensureNetwork());
      const Container = pauseContainerName(sandboxId);
      // The container refers to the removed network by id.
      await network.disconnect({ Container, Force: true });
      await network.connect({ Container });
      return startPauseContainer(this.docker, sandboxId);
    }
  }

  private async ensureNetwork(): Promise<string> {
    const name = this.ownNetwork;
    // The engine does not detect a concurrent duplicate.
    this.making ??= makeNetwork(this.docker, name, this.options.instanceId).finally(
      () => (this.making = undefined),
    );
    await this.making;
    return name;
  }
}

function leftOver(
  sandbox: Docker.ContainerInfo | undefined,
  pause: Docker.ContainerInfo | undefined,
): Work | undefined {
  if (sandbox && isAlive(sandbox)) {
    // Without its pause container the sandbox has no network, and cannot get one back.
    const joined = sandbox.HostConfig.NetworkMode.startsWith('container:');
    return joined && !(pause && isAlive(pause)) ? 'end_sandbox' : undefined;
  }
  if (!pause) return undefined;
  if (sandbox) return isAlive(pause) ? 'stop_pause_container' : undefined;
  return Date.now() / 1000 - pause.Created > ORPHAN_SECS ? 'remove_pause_container' : undefined;
}

function isAlive({ State }: Docker.ContainerInfo): boolean {
  return State === 'running' || State === 'paused' || State === 'restarting';
}

async function makeNetwork(docker: Docker, name: string, instanceId: string): Promise<void> {
  try {
    await docker.getNetwork(name).inspect();
    return;
  } catch (error) {
    if (statusOf(error) !== 404) throw error;
  }
  await docker.createNetwork({
    Name: name,
    Driver: 'bridge',
    CheckDuplicate: true,
    EnableIPv6: false,
    Labels: { [INSTANCE_LABEL]: instanceId },
    // A second barrier between neighbours, besides the rules.
    Options: { 'com.docker.network.bridge.enable_icc': 'false' },
  });
}
