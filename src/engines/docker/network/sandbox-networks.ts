import type Docker from 'dockerode';
import { StartRefusedError, type Run } from '../../../engine/runtime.js';
import type { Capability } from '../../../spec/capabilities.js';
import { INSTANCE_LABEL, SANDBOX_LABEL } from '../container.js';
import { NOT_FOUND, statusOf } from '../errors.js';
import type { ResolverConfig } from '../files/resolver-files.js';
import { compilePolicy } from './compile-policy.js';
import { isGated } from './gateway/gated-sandbox.js';
import { GatedRules } from './gateway/gated-rules.js';
import { explainNoGateway } from './gateway/gateway-probe.js';
import { readRunning } from './gateway/running.js';
import { GatewaySupervisor } from './gateway/supervisor.js';
import { setMtu } from './gateway/links.js';
import { explainNoNetwork, type NetworkOptions } from './network-probe.js';
import { loadRules } from './nftables.js';
import {
  createPauseContainer,
  environmentLineOf,
  inspectPauseContainer,
  isPauseContainer,
  parsePauseContainer,
  PAUSE_LABEL,
  pauseContainerName,
  removePauseContainer,
  startPauseContainer,
  stopPauseContainer,
  type PauseContainer,
} from './pause-container.js';
import { PUBLIC_PROFILE } from '../../../network-policy/public-profile.js';
import { hasDomainRules } from '../../../network-policy/domains.js';
import { Evaluator, type Surroundings } from '../../../network-policy/evaluate.js';
import { MachineNames } from '../../../gateway/machine-names.js';
import { GATEWAY_ADDRESS } from '../../../gateway/protocol.js';
import { canRecord } from './record/read-counters.js';
import { recordTable } from './record/record-table.js';
import { TrafficRecorder } from './record/recorder.js';
import { isRunning, neededRepair } from './repair.js';
import { systemResolvers } from './resolvers.js';
import { networkInterfaces } from 'node:os';

/** It is taken, it is outside the subnets of the network, or these were not chosen by the operator. */
const ADDRESS_REFUSED = /\baddress already in use\b|\bsubnets?\b/i;

interface JoinedNetwork {
  mode: string;
  resolverConfig: ResolverConfig;
}

const FILTERS = [
  'network_policy',
  'network_icmp',
  'network_port_ranges',
  'network_private',
  'connection_limit',
  'network_mac',
  'published_ports',
] as const;
const GATED = ['network_domains', 'network_dns', 'secrets', 'tls_interception', 'network_mtu'] as const;

/** Gives each sandbox a network namespace with rules, which the sandbox cannot change. See docs/decisions/0012. */
export class SandboxNetworks {
  /** Sandboxes that are being started or removed: `repair` skips them. */
  private readonly claimed = new Set<string>();
  private readonly repairs = new Map<string, Promise<void>>();
  private readonly unconfirmed = new Map<string, PauseContainer>();
  private creatingNetwork: Promise<void> | undefined;
  private readonly gateway: GatewaySupervisor | undefined;

  private constructor(
    private readonly docker: Docker,
    private readonly options: NetworkOptions,
    private readonly unavailable: string | undefined,
    private readonly recorder: TrafficRecorder | undefined,
    private readonly noGateway: string | undefined,
  ) {
    const { gateway: services, instanceId, init, openableGroups, name } = options;
    if (noGateway !== undefined || services === undefined) return;
    const names = new MachineNames(options.resolvers ? { servers: options.resolvers } : {});
    this.gateway = new GatewaySupervisor(docker, {
      instanceId,
      init,
      services,
      openableGroups,
      hosts: hostAddresses,
      resolvers: () => this.resolvers(),
      network: async () => name ?? this.ensureNetwork(),
      ask: async (query, timeoutMs) => names.ask(query, timeoutMs),
      running: async () => {
        const found = await readRunning(docker, instanceId, services);
        return found.map(({ run, pause }) => ({ run, pause, surroundings: this.surroundingsOf(pause) }));
      },
    });
  }

  get capabilities(): Capability[] {
    if (this.unavailable !== undefined) return [];
    const recorded = this.recorder ? (['network_record'] as const) : [];
    return [
      ...FILTERS,
      ...(this.gateway ? GATED : []),
      // Docker gives out no address of a network whose addresses it chose itself.
      ...(this.options.name === undefined ? [] : (['network_address'] as const)),
      ...recorded,
      ...this.options.openableGroups.map((group) => `network_${group}` as const),
    ];
  }

  /** Why the machine has no gateway. Undefined: it has one, or no network at all. */
  get lacksGateway(): string | undefined {
    return this.unavailable === undefined ? this.noGateway : undefined;
  }

  get description(): string {
    if (this.unavailable !== undefined) return `NONE, because ${this.unavailable}`;
    const without = this.noGateway === undefined ? '' : `, without a gateway, because ${this.noGateway}`;
    return `${this.options.name ?? 'a bridge of its own'}, filtered in each sandbox${without}`;
  }

  static async open(docker: Docker, options: NetworkOptions): Promise<SandboxNetworks> {
    const unavailable = await explainNoNetwork(docker, options);
    const { gateway, instanceId } = options;
    const isRecorded = gateway !== undefined && unavailable === undefined && (await canRecord());
    const recorder = isRecorded ? new TrafficRecorder(docker, instanceId, gateway) : undefined;
    const noGateway = unavailable ?? (await explainNoGateway());
    return new SandboxNetworks(docker, options, unavailable, recorder, noGateway);
  }

  /** `term`: of the process that acts on the engine. */
  takeOver(term: { readonly valid: boolean }): void {
    this.recorder?.start(term);
    this.gateway?.start(term);
  }

  /** Excludes `repair` from a sandbox until the returned function is called. */
  async claim(sandboxId: string): Promise<() => void> {
    this.claimed.add(sandboxId);
    await this.repairs.get(sandboxId);
    return () => void this.claimed.delete(sandboxId);
  }

  /**
   * Loads the rules before the sandbox can run. `existing`: its container, whose network mode is fixed. Throws
   * StartRefusedError.
   */
  async join(run: Run, existing: Docker.Container | undefined): Promise<JoinedNetwork> {
    const { sandboxId, spec } = run;
    const hostname = spec.hostname ?? sandboxId;
    const none = { mode: 'none', resolverConfig: { hostname, addresses: [], resolvers: [] } };
    const mode = existing && (await existing.inspect()).HostConfig.NetworkMode;
    if (mode === 'none' || (mode === undefined && !spec.networkEnabled)) return none;
    if (mode !== undefined && !mode.startsWith('container:')) {
      throw new StartRefusedError(
        `the sandbox has the unfiltered network ${mode}: delete it and create it again`,
      );
    }
    if (this.unavailable !== undefined) {
      // Without a policy, no network is the strictest answer. Published ports need one.
      if (mode === undefined && spec.networkPolicy == null && !spec.ports) return none;
      throw new StartRefusedError(
        'the sandbox cannot have its network on this machine; "sandkeep doctor" shows the operator the reason',
        { cause: this.unavailable },
      );
    }
    const { docker, options } = this;
    const found = await inspectPauseContainer(docker, sandboxId);
    if (mode !== undefined && mode !== `container:${found?.Id}`) {
      throw new StartRefusedError(
        'the network of the sandbox was removed: delete the sandbox and create it again',
      );
    }
    if (spec.gated != null && !this.gateway) {
      throw new StartRefusedError(
        'this machine has no gateway for rules by domain, secrets and interception; "sandkeep doctor" shows the operator the reason',
        { cause: this.noGateway },
      );
    }
    const { mac, ipv4 } = spec.networkInterface ?? {};
    const open = async () => {
      if (!found) {
        const network = options.name ?? (await this.ensureNetwork());
        await createPauseContainer({
          ...options,
          sandboxId,
          hostname,
          network,
          mac: mac ?? undefined,
          ipv4: ipv4 ?? undefined,
          ports: spec.ports,
        });
      }
      return this.startPause(sandboxId);
    };
    const pause = await open().catch(async (cause: Error) => {
      if (ipv4 == null || !ADDRESS_REFUSED.test(cause.message)) throw cause;
      // The container of the sandbox refers to one that was found.
      if (!found) await removePauseContainer(docker, sandboxId);
      throw new StartRefusedError(
        `the network of the sandboxes cannot give out ${ipv4}: choose an address of its subnet that no other sandbox has`,
        { cause },
      );
    });
    const policy = spec.networkPolicy ?? PUBLIC_PROFILE;
    const surroundings = this.surroundingsOf(pause);
    const gated = spec.gated ? new GatedRules(policy, spec.gated, surroundings) : undefined;
    const rules = compilePolicy(
      policy,
      { ...surroundings, bandwidthMbits: options.bandwidthMbits },
      { limits: spec.networkLimits, gated, published: spec.ports },
    );
    // A sandbox that starts again soon has the namespace of its previous run.
    await this.recorder?.finish(sandboxId);
    // The list of refusals of a sandbox with a gateway has those of the kernel too.
    const isCounted = this.recorder !== undefined && (spec.networkRecord === true || spec.gated != null);
    await loadRules(pause.pid, environmentLineOf(sandboxId), isCounted ? rules + recordTable() : rules);
    const evaluator = hasDomainRules(policy) ? undefined : new Evaluator(policy, surroundings);
    this.recorder?.begin(sandboxId, pause.pid, isCounted ? { evaluator } : undefined);
    const mtu = spec.networkInterface?.mtu ?? undefined;
    if (mtu !== undefined) await setMtu(pause.pid, environmentLineOf(sandboxId), mtu);
    if (isGated(run)) await this.gateway!.add(run, pause, surroundings);
    else this.gateway?.forget(sandboxId);
    this.unconfirmed.set(sandboxId, pause);
    return {
      mode: `container:${pause.id}`,
      resolverConfig: {
        hostname,
        addresses: pause.links.map((link) => link.split('/')[0]!),
        resolvers: gated ? [GATEWAY_ADDRESS] : surroundings.resolvers,
      },
    };
  }

  /**
   * Kills a started sandbox and throws StartRefusedError when the pause container has restarted meanwhile, without
   * rules.
   */
  async confirm({ sandboxId }: Run, container: Docker.Container): Promise<void> {
    const expected = this.unconfirmed.get(sandboxId);
    if (!expected) return;
    this.unconfirmed.delete(sandboxId);
    const found = await inspectPauseContainer(this.docker, sandboxId);
    const pause = found && parsePauseContainer(found);
    if (pause?.pid === expected.pid && pause.startedAt === expected.startedAt) return;
    await container.kill().catch(() => undefined);
    throw new StartRefusedError('the network of the sandbox ended during the start: start the sandbox again');
  }

  changeSecrets(run: Pick<Run, 'orgId' | 'sandboxId' | 'spec' | 'secrets'>): void {
    if (isGated(run)) this.gateway?.changeSecrets(run);
  }

  async remove(sandboxId: string): Promise<void> {
    this.gateway?.forget(sandboxId);
    await this.recorder?.finish(sandboxId);
    await removePauseContainer(this.docker, sandboxId);
  }

  /** Repairs in the background what crashes or other programs left. */
  repair(containers: readonly Docker.ContainerInfo[]): void {
    const sandboxes = new Map(containers.map((container) => [container.Labels[SANDBOX_LABEL], container]));
    // Values of secrets stay in the gateway no longer than the run.
    this.gateway?.keepOnly((id) => this.claimed.has(id) || isRunning(sandboxes.get(id)));
    const pauses = new Map(
      containers.filter(isPauseContainer).map((container) => [container.Labels[PAUSE_LABEL], container]),
    );
    for (const sandboxId of new Set([...sandboxes.keys(), ...pauses.keys()])) {
      if (sandboxId === undefined || this.claimed.has(sandboxId) || this.repairs.has(sandboxId)) continue;
      if (neededRepair(sandboxes.get(sandboxId), pauses.get(sandboxId)) === undefined) continue;
      const running = this.repairOne(sandboxId)
        .catch(() => undefined)
        .finally(() => this.repairs.delete(sandboxId));
      this.repairs.set(sandboxId, running);
    }
  }

  /** Waits for `repair`. Removes the bridge if no pause container needs it. */
  async close(): Promise<void> {
    await this.recorder?.close();
    await this.gateway?.close();
    await Promise.all(this.repairs.values());
    if (this.unavailable !== undefined) return;
    const filters = { label: [`${INSTANCE_LABEL}=${this.options.instanceId}`, PAUSE_LABEL] };
    try {
      if ((await this.docker.listContainers({ all: true, filters })).length > 0) return;
      await this.gateway?.removeHolder();
      if (this.options.name === undefined) await this.docker.getNetwork(this.ownNetwork).remove();
    } catch {
      // A remaining bridge is used again.
    }
  }

  /** Lists again: the first list may be older than the latest start. */
  private async repairOne(sandboxId: string): Promise<void> {
    const [sandbox, pause] = await Promise.all(
      [SANDBOX_LABEL, PAUSE_LABEL].map(async (label) => {
        const ours = `${INSTANCE_LABEL}=${this.options.instanceId}`;
        const filters = { label: [ours, `${label}=${sandboxId}`] };
        const found = await this.docker.listContainers({ all: true, filters });
        return found.find((container) => isPauseContainer(container) === (label === PAUSE_LABEL));
      }),
    );
    switch (neededRepair(sandbox, pause)) {
      case 'stop_pause_container':
        await this.recorder?.finish(sandboxId);
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

  private resolvers(): readonly string[] {
    return this.options.resolvers ?? systemResolvers().addresses;
  }

  private surroundingsOf({ gateways, links }: PauseContainer): Surroundings {
    return {
      hosts: [...hostAddresses(), ...gateways],
      resolvers: this.resolvers(),
      neighbours: links,
      openableGroups: this.options.openableGroups,
    };
  }

  private get ownNetwork(): string {
    return `sandkeep-${this.options.instanceId}`;
  }

  private async startPause(sandboxId: string): Promise<PauseContainer> {
    try {
      return await startPauseContainer(this.docker, sandboxId);
    } catch (error) {
      // `docker network prune` removes a network that only stopped containers use.
      if (statusOf(error) !== NOT_FOUND || this.options.name !== undefined) throw error;
      const network = this.docker.getNetwork(await this.ensureNetwork());
      const Container = pauseContainerName(sandboxId);
      await network.disconnect({ Container, Force: true });
      await network.connect({ Container });
      return startPauseContainer(this.docker, sandboxId);
    }
  }

  private async ensureNetwork(): Promise<string> {
    const name = this.ownNetwork;
    // The engine does not detect a concurrent duplicate.
    this.creatingNetwork ??= createNetworkIfMissing(this.docker, name, this.options.instanceId).finally(
      () => (this.creatingNetwork = undefined),
    );
    await this.creatingNetwork;
    return name;
  }
}

async function createNetworkIfMissing(docker: Docker, name: string, instanceId: string): Promise<void> {
  try {
    await docker.getNetwork(name).inspect();
    return;
  } catch (error) {
    if (statusOf(error) !== NOT_FOUND) throw error;
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

function hostAddresses(): string[] {
  return Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter(({ internal }) => !internal)
    .map(({ address }) => withoutZone(address));
}

function withoutZone(address: string): string {
  return address.split('%')[0]!;
}
