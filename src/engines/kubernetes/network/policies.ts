import type { V1NetworkPolicy, V1NetworkPolicySpec } from '@kubernetes/client-node';
import type { NetworkPolicy } from '../../../network-policy/schema.js';
import { PUBLIC_PROFILE } from '../../../network-policy/public-profile.js';
import { StartRefusedError, type Run } from '../../../engine/runtime.js';
import type { Cluster } from '../client.js';
import { CONFLICT, ignoreStatus } from '../errors.js';
import { INSTANCE_LABEL, RUN_LABEL, SANDBOX_LABEL, selectorOf } from '../names.js';
import type { Namespaces } from '../namespaces.js';
import { RunObjects } from '../run-objects.js';
import { compilePolicy, type PolicyEnvironment } from './compile-policy.js';

/**
 * Closes the Pods of all sandboxes of the namespace. Policies of runs only open something, so the loss of one opens
 * nothing.
 */
const FLOOR = 'sandkeep-sandboxes';
const FLOOR_SPEC: V1NetworkPolicySpec = {
  podSelector: { matchExpressions: [{ key: SANDBOX_LABEL, operator: 'Exists' }] },
  policyTypes: ['Ingress', 'Egress'],
};

/** The NetworkPolicies of sandboxes. That of a run exists from before its Pod until the Pod is gone. */
export class SandboxPolicies {
  private readonly objects: RunObjects;
  private environment: PolicyEnvironment | undefined;
  private publicProfile: ReturnType<typeof compilePolicy> = {};

  constructor(
    private readonly cluster: Cluster,
    private readonly instanceId: string,
    namespaces: Namespaces,
  ) {
    const { networking } = cluster;
    const labelSelector = selectorOf(instanceId);
    this.objects = new RunObjects(namespaces, {
      list: async (namespace) => networking.listNamespacedNetworkPolicy({ namespace, labelSelector }),
      remove: async (place) => networking.deleteNamespacedNetworkPolicy(place),
    });
  }

  /** For the next starts. */
  use(environment: PolicyEnvironment): void {
    this.environment = environment;
    this.publicProfile = compilePolicy(PUBLIC_PROFILE, environment);
  }

  async takeOver(): Promise<void> {
    await this.objects.takeOver();
  }

  /** `startPod` resolves when the Pod is in the list. */
  async around(run: Run, startPod: () => Promise<void>): Promise<void> {
    if (!run.spec.networkEnabled) return startPod();
    const { networking } = this.cluster;
    await this.objects.around(
      run,
      async ({ name, namespace }) =>
        networking.createNamespacedNetworkPolicy({ namespace, body: this.policyOf(run, name) }),
      startPod,
    );
  }

  /** Removes the policies whose Pods are gone. */
  async sweep(exists: (pod: string) => boolean): Promise<void> {
    await this.objects.sweep(exists);
  }

  /** The floor. */
  async ensure(namespace: string): Promise<void> {
    const { networking } = this.cluster;
    const body: V1NetworkPolicy = {
      metadata: { name: FLOOR, labels: { 'app.kubernetes.io/managed-by': 'sandkeep' } },
      spec: FLOOR_SPEC,
    };
    const created = await networking
      .createNamespacedNetworkPolicy({ namespace, body })
      .catch(ignoreStatus(CONFLICT));
    if (!created) await networking.replaceNamespacedNetworkPolicy({ name: FLOOR, namespace, body });
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
