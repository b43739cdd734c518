import { isSubnetOfAny } from '../../../lib/cidr.js';
import { startLoop, type Loop } from '../../../lib/loop.js';
import { GROUPS } from '../../../lib/special-addresses.js';
import type { Capability } from '../../../spec/capabilities.js';
import type { Cluster } from '../client.js';
import type { Namespaces } from '../namespaces.js';
import type { NetworkChoice } from './choices.js';
import type { Family } from './compile-policy.js';
import type { Findings } from './findings.js';
import { SandboxPolicies } from './policies.js';
import type { ProbeOptions } from './probe-pods.js';
import { ProbeLease } from './probe-lease.js';
import { probeNetwork } from './probe.js';

export interface NetworkOptions extends ProbeOptions {
  choice: NetworkChoice;
  /** The addresses of Pods, nodes and Services. Empty: every private address. */
  clusterCidrs: readonly string[];
}

/** Known findings answer most of these without a probe. */
const RECHECK_MS = 5 * 60_000;
const PRIVATE = [...GROUPS.private.v4, ...GROUPS.private.v6];

/** The network of sandboxes in the cluster. */
export class ClusterNetwork {
  private state: { capabilities: readonly Capability[]; description: string } = {
    capabilities: ['network'],
    description: "the cluster's, TRUSTED by --kubernetes-network",
  };
  private readonly lease: ProbeLease;
  private rechecks: Loop | undefined;
  /** Undefined: the service sets no policies. */
  readonly policies: SandboxPolicies | undefined;

  private constructor(
    private readonly cluster: Cluster,
    private readonly options: NetworkOptions,
    namespaces: Namespaces,
  ) {
    const { instanceId, image, runtimeClass, architecture, choice } = options;
    this.lease = new ProbeLease(cluster, instanceId, JSON.stringify([image, runtimeClass, architecture]));
    this.policies = choice === 'probe' ? new SandboxPolicies(cluster, instanceId, namespaces) : undefined;
  }

  static async open(
    cluster: Cluster,
    options: NetworkOptions,
    namespaces: Namespaces,
  ): Promise<ClusterNetwork> {
    const network = new ClusterNetwork(cluster, options, namespaces);
    if (network.policies === undefined) return network;
    await network.check();
    network.rechecks = startLoop(async () => network.check(), {
      intervalMs: RECHECK_MS,
      maxBackoffMs: RECHECK_MS,
      // The findings stay those of the last probe that ended.
      onError: () => undefined,
    });
    return network;
  }

  get capabilities(): readonly Capability[] {
    return this.state.capabilities;
  }

  get description(): string {
    return this.state.description;
  }

  /** A probe that runs is left to its end. */
  close(): void {
    void this.rechecks?.stop();
  }

  private async check(): Promise<void> {
    const { cluster, options } = this;
    const findings = await this.lease.findings(async () => probeNetwork(cluster, options));
    const isNamed = options.clusterCidrs.length > 0;
    const clusterCidrs = isNamed ? options.clusterCidrs : PRIVATE;
    const reason = findings.reason ?? explainOutside(findings, clusterCidrs);
    if (reason !== null) {
      this.state = { capabilities: [], description: `NONE: ${reason}` };
      return;
    }
    const families = [...new Set(findings.podAddresses.map(familyOf))];
    this.policies?.use({ families, clusterCidrs, resolvers: findings.resolvers });
    const own = findings.reachesNode ? ', except to the own node' : '';
    this.state = {
      description: `by NetworkPolicy, which the cluster enforces${own}`,
      capabilities: [
        ...(['network', 'network_off', 'network_policy'] as const),
        ...(findings.hasPortRanges ? (['network_port_ranges'] as const) : []),
        ...(isNamed ? (['network_private'] as const) : []),
      ],
    };
  }
}

function familyOf(address: string): Family {
  return address.includes(':') ? 'v6' : 'v4';
}

/** Otherwise a policy that opens public addresses would open these. */
function explainOutside(
  { podAddresses, otherAddresses }: Findings,
  clusterCidrs: readonly string[],
): string | null {
  const outside = [...podAddresses, ...otherAddresses].find(
    (address) => !isSubnetOfAny(address, clusterCidrs),
  );
  if (outside === undefined) return null;
  return `the cluster uses ${outside}: name all its addresses with --kubernetes-cluster-cidrs`;
}
