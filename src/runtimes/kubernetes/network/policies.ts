import type { V1NetworkPolicy, V1NetworkPolicySpec } from '@kubernetes/client-node';
import type { NetworkPolicy } from '../../../sandboxes/spec/network-schema.js';
import { PUBLIC_PROFILE } from '../../docker/network/public-profile.js';
import { StartRefusedError, type Run } from '../../runtime.js';
import type { Cluster } from '../client.js';
import { CONFLICT, ignoreStatus, NOT_FOUND } from '../errors.js';
import { INSTANCE_LABEL, podName, RUN_LABEL, SANDBOX_LABEL, selectorOf } from '../names.js';
import { compilePolicy, type PolicyEnvironment } from './compile-policy.js';

/** Closes the Pods of all sandboxes of the namespace. Policies of runs only open something, so the loss of one opens nothing. */
const FLOOR = 'sandkeep-sandboxes';
const FLOOR_SPEC: V1NetworkPolicySpec = {
  podSelector: { matchExpressions: [{ key: SANDBOX_LABEL, operator: 'Exists' }] },
  policyTypes: ['Ingress', 'Egress'],
};
const ENSURE_EVERY_MS = 60_000;

/** The NetworkPolicies of sandboxes. That of a run exists from before its Pod until the Pod is gone. */
export class SandboxPolicies {
  /** The Pods of these policies, by name. */
  private held = new Set<string>();
  private readonly starting = new Set<string>();
  private environment: PolicyEnvironment | undefined;
  private publicProfile: ReturnType<typeof compilePolicy> = {};
  private ensuredAt = -Infinity;

  constructor(
    private readonly cluster: Cluster,
    private readonly instanceId: string,
  ) {}

  /** For the next starts. */
  use(environment: PolicyEnvironment): void {
    this.environment = environment;
    this.publicProfile = compilePolicy(PUBLIC_PROFILE, environment);
  }

  /** Finds the policies that another process left. */
  async takeOver(): Promise<void> {
    const { networking, namespace } = this.cluster;
    const labelSelector = selectorOf(this.instanceId);
    const { items } = await networking.listNamespacedNetworkPolicy({ namespace, labelSelector });
    this.held = new Set(items.flatMap(({ metadata }) => metadata?.name ?? []));
    this.ensuredAt = -Infinity;
  }

  /** `startPod` resolves when the Pod is in the list. */
  async around(run: Run, startPod: () => Promise<void>): Promise<void> {
    await this.ensureFloor();
    if (!run.spec.networkEnabled) return startPod();
    const name = podName(run.runId);
    this.starting.add(name);
    this.held.add(name);
    try {
      const { networking, namespace } = this.cluster;
      const body = this.policyOf(run, name);
      await networking.createNamespacedNetworkPolicy({ namespace, body }).catch(ignoreStatus(CONFLICT));
      await startPod();
    } finally {
      this.starting.delete(name);
    }
  }

  /** Removes the policies whose Pods are gone. */
  async sweep(exists: (pod: string) => boolean): Promise<void> {
    const { networking, namespace } = this.cluster;
    for (const name of this.held) {
      if (this.starting.has(name) || exists(name)) continue;
      await networking.deleteNamespacedNetworkPolicy({ name, namespace }).catch(ignoreStatus(NOT_FOUND));
      this.held.delete(name);
    }
  }

  /** Somebody may change or remove it while the service runs. */
  private async ensureFloor(): Promise<void> {
    if (performance.now() - this.ensuredAt < ENSURE_EVERY_MS) return;
    const { networking, namespace } = this.cluster;
    const body: V1NetworkPolicy = {
      metadata: { name: FLOOR, labels: { 'app.kubernetes.io/managed-by': 'sandkeep' } },
      spec: FLOOR_SPEC,
    };
    const created = await networking
      .createNamespacedNetworkPolicy({ namespace, body })
      .catch(ignoreStatus(CONFLICT));
    if (!created) await networking.replaceNamespacedNetworkPolicy({ name: FLOOR, namespace, body });
    this.ensuredAt = performance.now();
  }

  private policyOf({ sandboxId, runId, spec }: Run, name: string): V1NetworkPolicy {
    return {
      metadata: {
        name,
        labels: {
          'app.kubernetes.io/managed-by': 'sandkeep',
          [INSTANCE_LABEL]: this.instanceId,
          [SANDBOX_LABEL]: sandboxId,
          [RUN_LABEL]: runId,
        },
      },
      spec: {
        podSelector: { matchLabels: { [RUN_LABEL]: runId } },
        policyTypes: ['Ingress', 'Egress'],
        ...this.compile(spec.networkPolicy),
      },
    };
  }

  private compile(policy: NetworkPolicy | null | undefined): ReturnType<typeof compilePolicy> {
    if (!this.environment) throw new StartRefusedError('the cluster does not enforce network policies');
    return policy ? compilePolicy(policy, this.environment) : this.publicProfile;
  }
}
