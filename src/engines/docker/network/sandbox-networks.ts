import type Docker from 'dockerode';
import { StartRefusedError, type Run } from '../../../engine/runtime.js';
import type { Capability } from '../../../spec/capabilities.js';
import { INSTANCE_LABEL, SANDBOX_LABEL } from '../container.js';
import type { ResolverConfig } from '../../../machine-network/resolver-files.js';
import { AddressUpdates } from '../../../machine-network/address-updates.js';
import { Bridges, SANDBOXES_PER_BRIDGE } from './bridges.js';
import { changedAddresses, compilePolicy } from '../../../machine-network/compile-policy.js';
import { isGated } from '../../../machine-network/gateway/gated-sandbox.js';
import { GatedRules } from '../../../machine-network/gateway/gated-rules.js';
import { explainNoGateway } from '../../../machine-network/gateway/gateway-probe.js';
import { ensureHolder, removeHolder } from './gateway/holder-container.js';
import { readRunning } from './gateway/running.js';
import { GatewaySupervisor } from '../../../machine-network/gateway/supervisor.js';
import { setMtu } from '../../../machine-network/gateway/links.js';
import { MachineSurroundings } from '../../../machine-network/machine-surroundings.js';
import { explainNoNetwork, type NetworkOptions } from './network-probe.js';
import { applyRules, loadRules } from '../../../machine-network/nftables.js';
import {
  inspectPauseContainer,
  isPauseContainer,
  ownerOf,
  pauseContainerName,
  parsePauseContainer,
  PAUSE_LABEL,
  removePauseContainer,
  stopPauseContainer,
  type PauseContainer,
} from './pause-container.js';
import { PausePlacement } from './pause-placement.js';
import { PUBLIC_PROFILE } from '../../../network-policy/public-profile.js';
import { hasDomainRules } from '../../../network-policy/domains.js';
import { Evaluator } from '../../../network-policy/evaluate.js';
import { MachineNames } from '../../../gateway/machine-names.js';
import { GATEWAY_ADDRESS } from '../../../gateway/protocol.js';
import { LingeringNetworks } from './lingering-networks.js';
import { Orphans } from './orphans.js';
import { isPrepared, PreparedNetworks } from './prepared-networks.js';
import { canRecord } from '../../../machine-network/record/read-counters.js';
import { recordTable } from '../../../machine-network/record/record-table.js';
import { TrafficRecorder } from '../../../machine-network/record/recorder.js';
import { recordedEngine } from './recorded-engine.js';
import { isRunning, neededRepair } from './repair.js';

/** It is taken, it is outside the subnets of the network, or these were not chosen by the operator. */
const ADDRESS_REFUSED = /\baddress already in use\b|\bsubnets?\b/i;

interface JoinedNetwork {
  mode: string;
  /** The sandbox has another one until the service sets this. Undefined: it has its own. */
  hostName?: string | undefined;
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
  'published_ipv6',
] as const;
const GATED = ['network_domains', 'network_dns', 'secrets', 'tls_interception', 'network_mtu'] as const;

/** Gives each sandbox a network namespace with rules, which the sandbox cannot change. See docs/decisions/0012. */
export class SandboxNetworks {
  /** Sandboxes that are being started or removed: `repair` skips them. */
  private readonly claimed = new Set<string>();
  private readonly repairs = new Map<string, Promise<void>>();
  private readonly unconfirmed = new Map<string, PauseContainer>();
  /** Undefined: the operator named a network. */
  private readonly bridges: Bridges | undefined;
  private readonly placement: PausePlacement;
  private readonly prepared: PreparedNetworks;
  private readonly lingering: LingeringNetworks;
  private readonly orphans = new Orphans();
  private readonly surroundings: MachineSurroundings;
  private readonly updates: AddressUpdates;
  /** The latest list of the engine has them, or they started since. */
  private running = new Set<string>();
  private readonly gateway: GatewaySupervisor | undefined;

  private constructor(
    private readonly docker: Docker,
    private readonly options: NetworkOptions,
    private readonly unavailable: string | undefined,
    private readonly recorder: TrafficRecorder | undefined,
    private readonly noGateway: string | undefined,
  ) {
    const { gateway: services, instanceId, init, openableGroups, name } = options;
    const most = options.sandboxesPerBridge ?? SANDBOXES_PER_BRIDGE;
    if (name === undefined)
      this.bridges = new Bridges(docker, instanceId, { most, changed: () => this.noteAddresses(true) });
    this.placement = new PausePlacement(docker, name ?? this.bridges!);
    this.prepared = new PreparedNetworks(docker, {
      count: unavailable === undefined ? (options.preparedNetworks ?? 0) : 0,
      placement: this.placement,
      common: options,
    });
    this.lingering = new LingeringNetworks(options.preparedNetworks ?? 0);
    this.surroundings = new MachineSurroundings(options, this.bridges);
    this.updates = new AddressUpdates({
      update: async (sandboxId) => this.updateAddresses(sandboxId),
      inGateway: async () => this.gateway?.changeAddresses(),
      isClaimed: (sandboxId) => this.claimed.has(sandboxId),
    });
    if (noGateway !== undefined || services === undefined) return;
    const names = new MachineNames(options.resolvers ? { servers: options.resolvers } : {});
    this.gateway = new GatewaySupervisor({
      instanceId,
      services,
      openableGroups,
      addresses: () => this.surroundings.addresses(),
      surroundingsOf: (network) => this.surroundings.of(network),
      resolvers: () => this.surroundings.resolvers(),
      holder: async () =>
        ensureHolder(docker, { instanceId, init, network: name ?? (await this.bridges!.first()) }),
      ask: async (query, timeoutMs) => names.ask(query, timeoutMs),
      running: async () => readRunning(docker, instanceId, services),
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
    return `${this.options.name ?? 'bridges of its own'}, filtered in each sandbox${without}`;
  }

  static async open(docker: Docker, options: NetworkOptions): Promise<SandboxNetworks> {
    const unavailable = await explainNoNetwork(docker, options);
    const { gateway, instanceId } = options;
    const isRecorded = gateway !== undefined && unavailable === undefined && (await canRecord());
    const recorder = isRecorded
      ? new TrafficRecorder(recordedEngine(docker, instanceId), gateway)
      : undefined;
    const noGateway = unavailable ?? (await explainNoGateway());
    return new SandboxNetworks(docker, options, unavailable, recorder, noGateway);
  }

  /** `term`: of the process that acts on the engine. */
  takeOver(term: { readonly valid: boolean }): void {
    if (this.unavailable === undefined) this.bridges?.takeOver();
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
    const wanted = {
      ...options,
      sandboxId,
      hostname,
      mac: mac ?? undefined,
      ipv4: ipv4 ?? undefined,
      ports: spec.ports,
    };
    const isOrdinary = mac == null && ipv4 == null && (spec.ports?.length ?? 0) === 0;
    const open = async () => {
      const taken = !found && isOrdinary ? await this.prepared.take(sandboxId) : undefined;
      if (taken) return this.placement.adopt(sandboxId, taken);
      if (!found) await this.placement.create(wanted);
      return this.placement.start(wanted, found);
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
    // After a takeover the bridges may still be unknown. The later of two starts keeps both sandboxes apart.
    await this.bridges?.known();
    const addresses = this.surroundings.text();
    const surroundings = this.surroundings.of(pause);
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
    await loadRules(pause, isCounted ? rules + recordTable() : rules);
    // Connections of its last run still count for some time in the limits of the kernel.
    this.lingering.started(
      sandboxId,
      isOrdinary && !isCounted && spec.networkLimits == null && !isGated(run),
    );
    this.running.add(sandboxId);
    this.updates.started(sandboxId, addresses);
    const evaluator = hasDomainRules(policy) ? undefined : new Evaluator(policy, surroundings);
    this.recorder?.begin(sandboxId, pause, isCounted ? { evaluator } : undefined);
    const mtu = spec.networkInterface?.mtu ?? undefined;
    if (mtu !== undefined) await setMtu(pause, mtu);
    if (isGated(run)) await this.gateway!.add(run, pause, surroundings);
    else this.gateway?.forget(sandboxId);
    this.unconfirmed.set(sandboxId, pause);
    return {
      mode: `container:${pause.id}`,
      hostName: pause.hostname === hostname ? undefined : hostname,
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
    this.lingering.forget(sandboxId);
    await this.recorder?.finish(sandboxId);
    await removePauseContainer(this.docker, sandboxId);
  }

  /** Repairs in the background what crashes or other programs left. */
  repair(containers: readonly Docker.ContainerInfo[]): void {
    const sandboxes = new Map(containers.map((container) => [container.Labels[SANDBOX_LABEL], container]));
    // Values of secrets stay in the gateway no longer than the run.
    this.gateway?.keepOnly((id) => this.claimed.has(id) || isRunning(sandboxes.get(id)));
    const pauses = new Map(
      containers.flatMap((container) => {
        const owner = ownerOf(container);
        return owner === undefined ? [] : [[owner, container] as const];
      }),
    );
    if (this.unavailable === undefined) {
      this.bridges?.note([...pauses.values()], (id) => this.claimed.has(id));
      this.prepared.note([...pauses.values()], this.claimed.size === 0);
      for (const id of pauses.keys()) if (isPrepared(id)) pauses.delete(id);
      this.running = new Set([...pauses].flatMap(([id, pause]) => (isRunning(pause) ? [id] : [])));
      this.noteAddresses();
    }
    this.orphans.note([...pauses.keys()].filter((id) => !sandboxes.has(id)));
    for (const sandboxId of new Set([...sandboxes.keys(), ...pauses.keys()])) {
      if (sandboxId === undefined || this.claimed.has(sandboxId) || this.repairs.has(sandboxId)) continue;
      const repair = neededRepair(sandboxes.get(sandboxId), pauses.get(sandboxId));
      if (repair === undefined) continue;
      if (repair === 'stop_pause_container' && this.lingering.keeps(sandboxId)) continue;
      if (repair === 'remove_pause_container' && !this.orphans.isOld(sandboxId)) continue;
      const running = this.repairOne(sandboxId)
        .catch(() => undefined)
        .finally(() => this.repairs.delete(sandboxId));
      this.repairs.set(sandboxId, running);
    }
  }

  /** Ends the gateway, which sends its last reports. */
  async leave(): Promise<void> {
    await this.updates.close();
    await this.recorder?.close();
    await this.gateway?.close();
  }

  /** Waits for `repair`. Removes the bridges if no pause container needs them. */
  async close(): Promise<void> {
    await this.leave();
    await this.prepared.close();
    await Promise.all(this.repairs.values());
    if (this.unavailable !== undefined) return;
    const filters = { label: [`${INSTANCE_LABEL}=${this.options.instanceId}`, PAUSE_LABEL] };
    try {
      if ((await this.docker.listContainers({ all: true, filters })).length > 0) return;
      if (this.gateway) await removeHolder(this.docker, this.options.instanceId);
      await this.bridges?.removeAll();
    } catch {
      // Remaining bridges are used again.
    }
  }

  /** Lists again: the first list may be older than the latest start. */
  private async repairOne(sandboxId: string): Promise<void> {
    const ours = `${INSTANCE_LABEL}=${this.options.instanceId}`;
    const [sandboxes, pauses] = await Promise.all(
      [
        { label: [ours, `${SANDBOX_LABEL}=${sandboxId}`] },
        { label: [ours], name: [`^/${pauseContainerName(sandboxId)}$`] },
      ].map(async (filters) => this.docker.listContainers({ all: true, filters })),
    );
    const sandbox = sandboxes!.find((container) => !isPauseContainer(container));
    const pause = pauses!.find(isPauseContainer);
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

  private noteAddresses(isUrgent = false): void {
    this.updates.note([...this.running], this.surroundings.text(), isUrgent);
  }

  private async updateAddresses(sandboxId: string): Promise<void> {
    const found = await inspectPauseContainer(this.docker, sandboxId);
    if (!found?.State.Running) return;
    const pause = parsePauseContainer(found);
    const script = changedAddresses(this.surroundings.of(pause));
    await pause.enter(async (namespace) => applyRules(namespace, script));
  }
}
