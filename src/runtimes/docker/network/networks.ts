import type Docker from 'dockerode';
import { isIPv4 } from 'node:net';
import { StartRefusedError, type Capability, type Run } from '../../runtime.js';
import { INSTANCE_LABEL, SANDBOX_LABEL } from '../container.js';
import { statusOf } from '../errors.js';
import type { Names } from '../files/etc.js';
import {
  createHolder,
  HOLDER_LABEL,
  holderName,
  inspectHolder,
  isHolder,
  markOf,
  readHolder,
  removeHolder,
  startHolder,
  stopHolder,
  type Holder,
} from './holder.js';
import { hostAddresses, systemResolvers } from './host.js';
import { compilePolicy } from './policy.js';
import { PUBLIC_PROFILE } from './public-profile.js';
import { whyNoNetwork, type NetworkOptions } from './requirements.js';
import { putRules } from './rules.js';

/** A holder without a sandbox may be of a start that is under way in another process for as long, in seconds. */
const ORPHAN_SECS = 30;

interface Joined {
  /** The engine's word for the network. */
  mode: string;
  names: Names;
}

type Work = 'stop_holder' | 'remove_holder' | 'end_sandbox';

/**
 * The networks of sandboxes: each has a namespace of its own on one bridge, with rules in it before anything of the
 * sandbox runs. Nothing inside can change them. See docs/decisions/0012.
 */
export class DockerNetworks {
  /** Sandboxes that a start or a removal is under way for: nothing of theirs is left over. */
  private readonly claimed = new Set<string>();
  private readonly tidying = new Map<string, Promise<void>>();
  private readonly opened = new Map<string, Holder>();
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

  static async open(docker: Docker, options: NetworkOptions): Promise<DockerNetworks> {
    return new DockerNetworks(docker, options, await whyNoNetwork(docker, options));
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
    const found = await inspectHolder(docker, sandboxId);
    if (mode !== undefined && mode !== `container:${found?.Id}`) {
      throw new StartRefusedError('what holds the network of the sandbox was removed: make the sandbox anew');
    }
    const resolvers = options.resolvers ?? systemResolvers();
    if (!found) {
      const network = options.name ?? (await this.ensureNetwork());
      await createHolder(docker, { ...options, sandboxId, hostname, network });
    }
    const holder = await this.startHolder(sandboxId);
    const rules = compilePolicy(spec.networkPolicy ?? PUBLIC_PROFILE, {
      hosts: [...hostAddresses(), ...holder.gateways],
      resolvers,
      neighbours: holder.links,
      lifted: options.lifted,
    });
    await putRules(holder.pid, markOf(sandboxId), rules);
    this.opened.set(sandboxId, holder);
    return {
      mode: `container:${holder.id}`,
      names: {
        hostname,
        addresses: holder.links.map((link) => link.split('/')[0]!),
        // A sandbox without IPv6 would only lose time with the others.
        resolvers: resolvers.filter(isIPv4),
      },
    };
  }

  /**
   * Looks once more after the start: has the sandbox joined the namespace that has the rules? Somebody else may have
   * started its holder anew in between. Then it is ended, and the error lets it be tried again.
   */
  async confirm({ sandboxId }: Run, container: Docker.Container): Promise<void> {
    const expected = this.opened.get(sandboxId);
    if (!expected) return;
    this.opened.delete(sandboxId);
    const found = await inspectHolder(this.docker, sandboxId);
    const holder = found && readHolder(found);
    if (holder?.pid === expected.pid && holder.startedAt === expected.startedAt) return;
    await container.kill().catch(() => undefined);
    throw new StartRefusedError('what holds the network of the sandbox ended while the sandbox was started');
  }

  /** Removes what is held for the network of a sandbox. Nothing is no error. */
  async remove(sandboxId: string): Promise<void> {
    await removeHolder(this.docker, sandboxId);
  }

  /**
   * Begins to put in order what a crash or somebody else left behind, as seen in the list of all containers of this
   * installation. Holders whose sandbox has ended are stopped: they come by here too.
   */
  tidy(containers: readonly Docker.ContainerInfo[]): void {
    const sandboxes = new Map(containers.map((container) => [container.Labels[SANDBOX_LABEL], container]));
    const holders = new Map(
      containers.filter(isHolder).map((container) => [container.Labels[HOLDER_LABEL], container]),
    );
    for (const sandboxId of new Set([...sandboxes.keys(), ...holders.keys()])) {
      if (sandboxId === undefined || this.claimed.has(sandboxId) || this.tidying.has(sandboxId)) continue;
      if (leftOver(sandboxes.get(sandboxId), holders.get(sandboxId)) === undefined) continue;
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
    const filters = { label: [`${INSTANCE_LABEL}=${this.options.instanceId}`, HOLDER_LABEL] };
    try {
      if ((await this.docker.listContainers({ all: true, filters })).length > 0) return;
      await this.docker.getNetwork(this.ownNetwork).remove();
    } catch {
      // It was never made, or the engine has gone. A bridge that stays is used again.
    }
  }

  /** The list may be older than the latest start: only what is still left over now is touched. */
  private async tidyOne(sandboxId: string): Promise<void> {
    const [sandbox, holder] = await Promise.all(
      [SANDBOX_LABEL, HOLDER_LABEL].map(async (label) => {
        const ours = `${INSTANCE_LABEL}=${this.options.instanceId}`;
        const filters = { label: [ours, `${label}=${sandboxId}`] };
        const found = await this.docker.listContainers({ all: true, filters });
        return found.find((container) => isHolder(container) === (label === HOLDER_LABEL));
      }),
    );
    switch (leftOver(sandbox, holder)) {
      case 'stop_holder':
        return stopHolder(this.docker, sandboxId);
      case 'remove_holder':
        return removeHolder(this.docker, sandboxId);
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

  private async startHolder(sandboxId: string): Promise<Holder> {
    try {
      return await startHolder(this.docker, sandboxId);
    } catch (error) {
      // The engine does not count those that rest as users of a network, and removes it when asked to tidy up.
      if (statusOf(error) !== 404 || this.options.name !== undefined) throw error;
      const network = this.docker.getNetwork(await this.ensureNetwork());
      const Container = holderName(sandboxId);
      // It remembers the network by its id, under a name that is another one's now.
      await network.disconnect({ Container, Force: true });
      await network.connect({ Container });
      return startHolder(this.docker, sandboxId);
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
  holder: Docker.ContainerInfo | undefined,
): Work | undefined {
  if (sandbox && isAlive(sandbox)) {
    // Its network went with the holder and does not come back: a sandbox that is cut off has to be seen to have ended.
    const joined = sandbox.HostConfig.NetworkMode.startsWith('container:');
    return joined && !(holder && isAlive(holder)) ? 'end_sandbox' : undefined;
  }
  if (!holder) return undefined;
  if (sandbox) return isAlive(holder) ? 'stop_holder' : undefined;
  return Date.now() / 1000 - holder.Created > ORPHAN_SECS ? 'remove_holder' : undefined;
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
