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

/** A pause container without a sandbox may be of a start that is under way in another process for as long, in seconds. */
const ORPHAN_SECS = 30;

interface Joined {
  /** The engine's word for the network. */
  mode: string;
  names: Names;
}

type Work = 'stop_pause_container' | 'remove_pause_container' | 'end_sandbox';

/**
 * The networks of sandboxes: each has a namespace of its own on one bridge, with rules in it before anything of the
 * sandbox runs. Nothing inside can change them. See docs/decisions/0012.
 */
export class SandboxNetworks {
  /** Sandboxes that a start or a removal is under way for: nothing of theirs is left over. */
  private readonly claimed = new Set<string>();
  private readonly tidying = new Map<string, Promise<void>>();
  private readonly opened = new Map<string, PauseContainer>();
  private making: Promise<void> | undefined;

  private constructor(
    private readonly docker: Docker,
    private readonly options: NetworkOptions,
    /** Why sandboxes have no network; undefined when they have one. */
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

  /** Keeps the sandbox to the caller until what is returned is called: what is left over of it is not tidied meanwhile. */
  async claim(sandboxId: string): Promise<() => void> {
    this.claimed.add(sandboxId);
    await this.tidying.get(sandboxId);
    return () => void this.claimed.delete(sandboxId);
  }

  /**
   * Makes the network of a sandbox that is about to start, with its rules. `made`: the sandbox's container, if there is
   * one already; it cannot change its network any more.
   *
   * Throws StartRefusedError rather than leave anything open.
   */
  async join({ sandboxId, spec }: Run, made: Docker.Container | undefined): Promise<Joined> {
    const hostname = spec.hostname ?? sandboxId;
    const nowhere = { mode: 'none', names: { hostname, addresses: [], resolvers: [] } };
    const mode = made && (await made.inspect()).HostConfig.NetworkMode;
    if (mode === 'none' || (mode === undefined && !spec.networkEnabled)) return nowhere;
    if (mode !== undefined && !mode.startsWith('container:')) {
      throw new StartRefusedError(`the sandbox was made with the open network ${mode}: make it anew`);
    }
    if (this.lack !== undefined) {
      // With nothing promised, nothing is less than that, but never more.
      if (mode === undefined && spec.networkPolicy == null) return nowhere;
      throw new StartRefusedError(`the sandbox cannot have its network: ${this.lack}`);
    }
    const { docker, options } = this;
    const found = await inspectPauseContainer(docker, sandboxId);
    if (mode !== undefined && mode !== `container:${found?.Id}`) {
      throw new StartRefusedError('what holds the network of the sandbox was removed: make the sandbox anew');
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
        // A sandbox without IPv6 would only lose time with the others.
        resolvers: resolvers.filter(isIPv4),
      },
    };
  }

  /**
   * Looks once more after the start: has the sandbox joined the namespace that has the rules? Somebody else may have
   * started its pause container anew in between. Then it is ended, and the error lets it be tried again.
   */
  async confirm({ sandboxId }: Run, container: Docker.Container): Promise<void> {
    const expected = this.opened.get(sandboxId);
    if (!expected) return;
    this.opened.delete(sandboxId);
    const found = await inspectPauseContainer(this.docker, sandboxId);
    const pause = found && parsePauseContainer(found);
    if (pause?.pid === expected.pid && pause.startedAt === expected.startedAt) return;
    await container.kill().catch(() => undefined);
    throw new StartRefusedError('what holds the network of the sandbox ended while the sandbox was started');
  }

  /** Removes what is held for the network of a sandbox. Nothing is no error. */
  async remove(sandboxId: string): Promise<void> {
    await removePauseContainer(this.docker, sandboxId);
  }

  /**
   * Begins to put in order what a crash or somebody else left behind, as seen in the list of all containers of this
   * installation. Holders whose sandbox has ended are stopped: they come by here too.
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
        // The next look finds it again.
        .catch(() => undefined)
        .finally(() => this.tidying.delete(sandboxId));
      this.tidying.set(sandboxId, work);
    }
  }

  /** Waits for what `tidy` began. Our own bridge goes when nobody will need it again. */
  async close(): Promise<void> {
    await Promise.all(this.tidying.values());
    if (this.lack !== undefined || this.options.name !== undefined) return;
    const filters = { label: [`${INSTANCE_LABEL}=${this.options.instanceId}`, PAUSE_LABEL] };
    try {
      if ((await this.docker.listContainers({ all: true, filters })).length > 0) return;
      await this.docker.getNetwork(this.ownNetwork).remove();
    } catch {
      // It was never made, or the engine has gone. A bridge that stays is used again.
    }
  }

  /** The list may be older than the latest start: only what is still left over now is touched. */
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
      // The engine does not count those that rest as users of a network, and removes it when asked to tidy up.
      if (statusOf(error) !== 404 || this.options.name !== undefined) throw error;
      const network = this.docker.getNetwork(await this.ensureNetwork());
      const Container = pauseContainerName(sandboxId);
      // It remembers the network by its id, under a name that is another one's now.
      await network.disconnect({ Container, Force: true });
      await network.connect({ Container });
      return startPauseContainer(this.docker, sandboxId);
    }
  }

  /** Makes the bridge that sandboxes are on when no other was named. Returns its name. */
  private async ensureNetwork(): Promise<string> {
    const name = this.ownNetwork;
    // The engine does not look closely when two of one name are asked for at once.
    this.making ??= makeNetwork(this.docker, name, this.options.instanceId).finally(
      () => (this.making = undefined),
    );
    await this.making;
    return name;
  }
}

/** What is to be done about a sandbox's containers, if anything. */
function leftOver(
  sandbox: Docker.ContainerInfo | undefined,
  pause: Docker.ContainerInfo | undefined,
): Work | undefined {
  if (sandbox && isAlive(sandbox)) {
    // Its network went with the pause container and does not come back: a sandbox that is cut off has to be seen to have ended.
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
    // The rules in each namespace keep neighbours apart. This does so once more.
    Options: { 'com.docker.network.bridge.enable_icc': 'false' },
  });
}
