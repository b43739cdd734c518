import { openSync, readFileSync, writeFileSync } from 'node:fs';
import { isIPv4 } from 'node:net';
import type { GatewayServices } from '../../../engine/definition.js';
import { StartRefusedError, type Run } from '../../../engine/runtime.js';
import { GATEWAY_ADDRESS } from '../../../gateway/protocol.js';
import { startLoop, type Loop } from '../../../lib/loop.js';
import { AddressUpdates } from '../../../machine-network/address-updates.js';
import { changedAddresses, compilePolicy } from '../../../machine-network/compile-policy.js';
import { GatedRules } from '../../../machine-network/gateway/gated-rules.js';
import { isGated } from '../../../machine-network/gateway/gated-sandbox.js';
import { explainNoGateway } from '../../../machine-network/gateway/gateway-probe.js';
import { MachineSurroundings } from '../../../machine-network/machine-surroundings.js';
import { applyRules } from '../../../machine-network/nftables.js';
import { behindLink } from '../../../machine-network/position.js';
import { canRecord } from '../../../machine-network/record/read-counters.js';
import { recordTable } from '../../../machine-network/record/record-table.js';
import { TrafficRecorder } from '../../../machine-network/record/recorder.js';
import { hasDomainRules } from '../../../network-policy/domains.js';
import { Evaluator, type Surroundings } from '../../../network-policy/evaluate.js';
import type { GuardedGroup } from '../../../network-policy/guarded-groups.js';
import { PUBLIC_PROFILE } from '../../../network-policy/public-profile.js';
import type { Capability } from '../../../spec/capabilities.js';
import type { PublishedPort } from '../../../spec/network-schema.js';
import { parsePool, type AddressPool } from './address-pool.js';
import { chooseSubnet } from './chosen-subnet.js';
import { requireFree } from './free-ports.js';
import type { HeldNamespace } from './held-namespace.js';
import { applyHostRules, hostRulesOf, inHost, type HostRules } from './host-rules.js';
import { LinkPlacement } from './link-placement.js';
import { explainNoNetwork, explainNoPublishing } from './network-probe.js';
import { removeMachineNetwork } from './machine-network.js';
import { isOnLoopback } from './port-rules.js';
import { guestHardwareAddress, makeNamespace, TAP } from './sandbox-namespace.js';
import { VmGateway } from './vm-gateway.js';

const FILTERS = [
  'network',
  'network_policy',
  'network_icmp',
  'network_port_ranges',
  'network_private',
  'connection_limit',
  'network_mac',
  'network_mtu',
] as const;
const GATED = ['network_domains', 'network_dns', 'secrets', 'tls_interception'] as const;
const DEFAULT_MTU = 1_500;
/** Other programs replace rules of the machine, and addresses come and go. */
const CHECK_MS = 5_000;

export interface VmNetworkOptions {
  instanceId: string;
  /** The directory of the engine. It has the choice of the addresses. */
  directory: string;
  /** The addresses that the operator chose. Undefined: the engine chooses some. */
  subnet: string | undefined;
  resolvers: readonly string[] | undefined;
  openableGroups: readonly GuardedGroup[];
  bandwidthMbits: number;
  services: GatewayServices | undefined;
}

/** The interface of a virtual machine, as its kernel sees it. */
export interface GuestInterface {
  mac: string;
  address: string;
  gateway: string;
  mtu: number;
  resolvers: string[];
}

export interface VmNetwork {
  /** An open descriptor, for the process that keeps the namespace until the virtual machine has ended. */
  namespace: number;
  /** The name of its link on the machine, for `note`. */
  link: string;
  /** The ports of the machine that lead to it. The supervisor keeps other programs from them. */
  ports: readonly PublishedPort[];
  guest: GuestInterface;
}

/** A virtual machine that runs. */
export interface RunningNetwork {
  orgId: string;
  sandboxId: string;
  /** As `make` returned it. */
  link: string;
  /** The path of its namespace, among the files of the process that keeps it. */
  path: string;
  /** Default: none. */
  ports?: readonly PublishedPort[] | undefined;
}

interface Held {
  orgId: string;
  namespace: HeldNamespace;
  ports: readonly PublishedPort[];
  /** The end of its start, by `performance.now()`. Infinity: no list of the engine has to have it. */
  since: number;
}

/** Gives each virtual machine a network namespace with rules. See docs/decisions/0056. */
export class VmNetworks {
  private readonly held = new Map<string, Held>();
  private readonly rules: HostRules;
  private readonly surroundings: MachineSurroundings;
  private readonly updates: AddressUpdates;
  private readonly placement: LinkPlacement | undefined;
  private readonly recorder: TrafficRecorder | undefined;
  private readonly gateway: VmGateway | undefined;
  private noteKnown: () => void = () => undefined;
  /** Resolves when the sandboxes of earlier processes are known. */
  private readonly known = new Promise<void>((resolve) => (this.noteKnown = resolve));
  private loop: Loop | undefined;
  private isApplied = false;
  /** Rules of the machine are replaced one after the other: an older list of ports must not replace a newer one. */
  private applying: Promise<void> = Promise.resolve();
  /** The machine still has the ports of an ended sandbox. */
  private isStale = false;

  private constructor(
    private readonly options: VmNetworkOptions,
    private readonly pool: AddressPool | undefined,
    readonly unavailable: string | undefined,
    private readonly noPublishing: string | undefined,
    { isRecorded, isGated: hasGateway }: { isRecorded: boolean; isGated: boolean },
  ) {
    const { services } = options;
    this.rules = hostRulesOf(options.instanceId);
    const surroundings = { subnets: pool ? [pool.subnet] : [], gateways: pool ? [pool.machine] : [] };
    this.surroundings = new MachineSurroundings(options, { surroundings });
    if (pool) this.placement = new LinkPlacement(pool, this.rules.links);
    this.updates = new AddressUpdates({
      update: async (sandboxId) => this.updateAddresses(sandboxId),
      inGateway: async () => this.gateway?.supervisor.changeAddresses(),
      isClaimed: () => false,
    });
    const engine = {
      list: async () => [...this.held.keys()],
      find: async (sandboxId: string) => this.held.get(sandboxId)?.namespace,
    };
    if (!services || !this.placement) return;
    if (isRecorded) this.recorder = new TrafficRecorder(engine, services);
    if (!hasGateway) return;
    this.gateway = new VmGateway({
      ...options,
      services,
      surroundings: this.surroundings,
      placement: this.placement,
      held: async () => {
        await this.known;
        return [...this.held].map(([sandboxId, { orgId, namespace }]) => ({ orgId, sandboxId, namespace }));
      },
    });
  }

  static async open(options: VmNetworkOptions): Promise<VmNetworks> {
    const { instanceId, directory, services } = options;
    const subnet = options.subnet ?? chooseSubnet(instanceId, directory);
    const pool = subnet === undefined ? undefined : parsePool(subnet);
    const noPool =
      pool === undefined
        ? 'no addresses are free in 10.192.0.0/10: choose some with --microvm-addresses'
        : undefined;
    const unavailable = (await explainNoNetwork()) ?? noPool;
    const hasServices = services !== undefined && unavailable === undefined;
    const noPublishing = unavailable ?? (await explainNoPublishing());
    return new VmNetworks(options, pool, unavailable, noPublishing, {
      isRecorded: hasServices && (await canRecord()),
      isGated: hasServices && (await explainNoGateway()) === undefined,
    });
  }

  get capabilities(): Capability[] {
    if (this.unavailable !== undefined) return [];
    return [
      ...FILTERS,
      ...(this.gateway ? GATED : []),
      ...(this.noPublishing === undefined ? (['published_ports'] as const) : []),
      ...(this.options.subnet === undefined ? [] : (['network_address'] as const)),
      ...(this.recorder ? (['network_record'] as const) : []),
      ...this.options.openableGroups.map((group) => `network_${group}` as const),
    ];
  }

  get description(): string {
    if (this.unavailable !== undefined) return `NONE, because ${this.unavailable}`;
    return `${this.pool!.subnet}, filtered for each sandbox${this.gateway ? '' : ', without a gateway'}`;
  }

  /** `term`: of the process that acts on the engine. */
  takeOver(term: { readonly valid: boolean }): void {
    if (this.unavailable !== undefined) return;
    void this.loop?.stop();
    this.recorder?.start(term);
    this.gateway?.supervisor.start(term);
    this.loop = startLoop(async () => (term.valid ? this.check() : undefined), {
      intervalMs: CHECK_MS,
      // The next start of a sandbox reports it.
      onError: () => undefined,
    });
  }

  /**
   * Makes the network of a run before its virtual machine. `continued`: the link of the run whose memory it continues,
   * which has its address. Undefined: it has none. Throws StartRefusedError.
   */
  async make(run: Run, continued?: string): Promise<VmNetwork | undefined> {
    const { orgId, sandboxId, spec } = run;
    await this.finish(sandboxId);
    if (!spec.networkEnabled) return undefined;
    if (this.unavailable !== undefined || !this.placement) {
      // Without a policy, no network is the strictest answer. Published ports need one.
      if (spec.networkPolicy == null && !spec.ports) return undefined;
      throw new StartRefusedError(
        'the sandbox cannot have its network on this machine; "sandkeep doctor" shows the operator the reason',
        { cause: this.unavailable },
      );
    }
    if (isGated(run) && !this.gateway)
      throw new StartRefusedError(
        'this machine has no gateway for rules by domain, secrets and interception; "sandkeep doctor" shows the operator the reason',
      );
    const { ports = [] } = spec;
    await this.requirePorts(ports);
    await this.applyHost();
    const addresses = this.surroundings.text();
    const { mac, mtu, ipv4 } = spec.networkInterface ?? {};
    const size = mtu ?? DEFAULT_MTU;
    const isCounted = this.recorder !== undefined && (spec.networkRecord === true || isGated(run));
    const surroundings = this.surroundings.of({ gateways: [], links: [] });
    const namespace = await this.placement.place(
      async (host, link) =>
        makeNamespace(host, link, this.rulesOf(run, link.address, surroundings, isCounted)),
      { mtu: size, wanted: ipv4 ?? undefined, continued },
    );
    this.held.set(sandboxId, { orgId, namespace, ports, since: Infinity });
    this.updates.started(sandboxId, addresses);
    const policy = spec.networkPolicy ?? PUBLIC_PROFILE;
    const evaluator = hasDomainRules(policy) ? undefined : new Evaluator(policy, surroundings);
    this.recorder?.begin(sandboxId, namespace, isCounted ? { evaluator } : undefined);
    if (isGated(run)) await this.gateway!.supervisor.add(run, namespace, this.surroundings.of(namespace));
    const { descriptor, link, address } = namespace.place;
    if (ports.some(isOnLoopback)) writeFileSync(`/proc/sys/net/ipv4/conf/${link}/route_localnet`, '1');
    if (ports.length > 0) await this.applyHost();
    return {
      namespace: descriptor,
      link,
      ports,
      guest: {
        mac: mac ?? guestHardwareAddress(address),
        address,
        gateway: this.pool!.gateway,
        mtu: size,
        resolvers: isGated(run) ? [GATEWAY_ADDRESS] : [...surroundings.resolvers],
      },
    };
  }

  changeSecrets(run: Pick<Run, 'orgId' | 'sandboxId' | 'spec' | 'secrets'>): void {
    if (isGated(run)) this.gateway?.supervisor.changeSecrets(run);
  }

  /** The links of paused sandboxes, whose addresses wait for them. */
  keepFor(paused: ReadonlySet<string>): void {
    this.placement?.keep(paused);
  }

  /** The start is over. From now on the lists of the engine have the sandbox, or it has ended. */
  settle(sandboxId: string): void {
    const held = this.held.get(sandboxId);
    if (held) held.since = performance.now();
  }

  /**
   * Takes over the sandboxes that an earlier process started, and gives up those that have ended. `running`: all of a
   * list of the engine, which was begun at `listedAt`, by `performance.now()`.
   */
  async note(running: readonly RunningNetwork[], listedAt: number): Promise<void> {
    const ids = new Set(running.map(({ sandboxId }) => sandboxId));
    for (const [sandboxId, { since }] of this.held)
      if (since < listedAt && !ids.has(sandboxId)) await this.finish(sandboxId);
    for (const { orgId, sandboxId, link, path, ports = [] } of running) {
      if (this.held.has(sandboxId) || !this.placement) continue;
      try {
        const namespace = this.placement.adopt(openSync(path, 'r'), link);
        // The machine has its ports from the earlier process.
        if (namespace) this.held.set(sandboxId, { orgId, namespace, ports, since: performance.now() });
      } catch {
        // It has ended meanwhile.
      }
    }
    this.noteKnown();
  }

  /** The virtual machine has ended. */
  async finish(sandboxId: string): Promise<void> {
    const held = this.held.get(sandboxId);
    if (!held) return;
    this.gateway?.supervisor.forget(sandboxId);
    await this.recorder?.finish(sandboxId);
    held.namespace.close();
    if (this.held.get(sandboxId) === held) this.held.delete(sandboxId);
    if (held.ports.length > 0) await this.applyHost().catch(() => (this.isStale = true));
  }

  /** Undefined: it does not run, or has no network. */
  traffic(sandboxId: string): { receivedBytes: number; sentBytes: number } | undefined {
    const link = this.held.get(sandboxId)?.namespace.place.link;
    if (link === undefined) return undefined;
    const read = (name: string) =>
      Number(readFileSync(`/sys/class/net/${link}/statistics/${name}_bytes`, 'utf8'));
    try {
      // The machine sends what the sandbox receives.
      return { receivedBytes: read('tx'), sentBytes: read('rx') };
    } catch {
      return undefined;
    }
  }

  /** Ends the work of this process. Networks of virtual machines that run stay. */
  async leave(): Promise<void> {
    await this.loop?.stop();
    await this.updates.close();
    await this.recorder?.close();
    await this.gateway?.close();
  }

  /** Removes the network of the machine when no virtual machine runs. */
  async close(): Promise<void> {
    await this.leave();
    const { size } = this.held;
    for (const { namespace } of this.held.values()) namespace.close();
    this.held.clear();
    // A process that has changed nothing may be one beside another that acts on the engine.
    if (size === 0 && (this.isApplied || this.loop !== undefined)) await removeMachineNetwork(this.options);
  }

  private rulesOf({ spec }: Run, address: string, surroundings: Surroundings, isCounted: boolean): string {
    const policy = spec.networkPolicy ?? PUBLIC_PROFILE;
    const position = behindLink(TAP, address);
    const gated = spec.gated ? new GatedRules(policy, spec.gated, surroundings) : undefined;
    const environment = { ...surroundings, bandwidthMbits: this.options.bandwidthMbits };
    const rules = compilePolicy(policy, environment, {
      limits: spec.networkLimits,
      gated,
      published: spec.ports,
      position,
    });
    return isCounted ? rules + recordTable(position) : rules;
  }

  private async check(): Promise<void> {
    if (this.held.size === 0 && !this.isStale) return;
    await this.applyHost();
    this.isStale = false;
    this.updates.note([...this.held.keys()], this.surroundings.text());
  }

  private async applyHost(): Promise<void> {
    this.isApplied = true;
    const earlier = this.applying;
    const work = (async () => {
      await earlier;
      const published = [...this.held.values()].map(({ namespace, ports }) => ({
        address: namespace.place.address,
        ports,
      }));
      await inHost(async (host) => applyHostRules(host, this.rules, this.pool!.subnet, published));
    })();
    this.applying = work.catch(() => undefined);
    await work;
  }

  /** Admission refuses what another engine could publish: the sandbox may be one of another engine's. */
  private async requirePorts(ports: readonly PublishedPort[]): Promise<void> {
    if (ports.length === 0) return;
    if (this.noPublishing !== undefined)
      throw new StartRefusedError(
        'this machine cannot publish ports of the sandbox; "sandkeep doctor" shows the operator the reason',
        { cause: this.noPublishing },
      );
    if (ports.some(({ host_bind }) => !isIPv4(host_bind)))
      throw new StartRefusedError(
        'a microVM publishes no port on an IPv6 address: create a sandbox with an IPv4 address in host_bind',
      );
    await requireFree(ports);
  }

  private async updateAddresses(sandboxId: string): Promise<void> {
    const namespace = this.held.get(sandboxId)?.namespace;
    if (!namespace) return;
    const script = changedAddresses(this.surroundings.of(namespace));
    await namespace.enter(async (descriptor) => applyRules(descriptor, script));
  }
}
