import type { V1NetworkPolicy, V1NetworkPolicySpec, V1Pod, V1Volume } from '@kubernetes/client-node';
import { sleep } from '../../../lib/sleep.js';
import { INIT_PROGRAM, PROGRAMS_DIRECTORY } from '../../../guest/programs.js';
import type { Cluster } from '../client.js';
import { ignoreStatus, NOT_FOUND } from '../errors.js';
import { CONTAINER } from '../names.js';
import { explainWaiting } from '../reasons.js';

const ROLES = ['client', 'server'] as const;
export type Role = (typeof ROLES)[number];

export const PROBE_PORT = 8_080;
/** The Pods of a probe are no sandboxes: they have no label of an installation. */
const PROBE_LABEL = 'sandkeep.dev/probe-of';
const ROLE_LABEL = 'sandkeep.dev/probe-role';
const START_LIMIT_MS = 120_000;
const LIFETIME_SECS = 300;
const POLL_MS = 500;
const NOBODY = 65_534;

export interface ProbeOptions {
  instanceId: string;
  image: string;
  runtimeClass: string | undefined;
  architecture: string;
  programs: V1Volume;
}

/** Two Pods on one node, and the policies for them. */
export class ProbePods {
  private readonly labelSelector: string;

  constructor(
    private readonly cluster: Cluster,
    private readonly options: ProbeOptions,
  ) {
    this.labelSelector = `${PROBE_LABEL}=${options.instanceId}`;
  }

  nameOf(role: Role): string {
    return `sandkeep-probe-${role}-${this.options.instanceId}`;
  }

  /** The reason why a Pod does not run, or both Pods. */
  async start(): Promise<string | Record<Role, V1Pod>> {
    const { core, namespace } = this.cluster;
    for (const role of ROLES) await core.createNamespacedPod({ namespace, body: this.podOf(role) });
    const deadline = performance.now() + START_LIMIT_MS;
    for (;;) {
      const pods = (await this.pods()).toSorted((a, b) => (a.metadata!.name! < b.metadata!.name! ? -1 : 1));
      const [client, server] = pods;
      if (client && server && pods.every(isRunning)) return { client, server };
      const reason = pods.map(explainPod).find((explained) => explained !== undefined);
      if (reason !== undefined) return reason;
      if (performance.now() > deadline) return pods.map(unscheduled).find(Boolean) ?? 'its Pods do not start';
      await sleep(POLL_MS);
    }
  }

  async addPolicy(
    role: Role,
    purpose: string,
    spec: Omit<V1NetworkPolicySpec, 'podSelector'>,
  ): Promise<void> {
    const { networking, namespace } = this.cluster;
    const labels = this.labelsOf(role);
    const metadata = { name: `${this.nameOf(role)}-${purpose}`, labels };
    const body: V1NetworkPolicy = { metadata, spec: { podSelector: { matchLabels: labels }, ...spec } };
    await networking.createNamespacedNetworkPolicy({ namespace, body });
  }

  async removePolicies(): Promise<void> {
    const { networking, namespace } = this.cluster;
    for (const name of await this.policies()) {
      await networking.deleteNamespacedNetworkPolicy({ name, namespace }).catch(ignoreStatus(NOT_FOUND));
    }
  }

  /** Also what a probe left that was killed. */
  async remove(): Promise<void> {
    const { core, namespace } = this.cluster;
    await this.removePolicies();
    for (
      const deadline = performance.now() + START_LIMIT_MS;
      performance.now() < deadline;
      await sleep(POLL_MS)
    ) {
      const pods = await this.pods();
      if (pods.length === 0) return;
      for (const { metadata } of pods) {
        await core
          .deleteNamespacedPod({ name: metadata!.name!, namespace, gracePeriodSeconds: 0 })
          .catch(ignoreStatus(NOT_FOUND));
      }
    }
    throw new Error('the Pods of an earlier probe of the network are not removed');
  }

  peerOf(role: Role): { podSelector: { matchLabels: Record<string, string> } } {
    return { podSelector: { matchLabels: this.labelsOf(role) } };
  }

  private async pods(): Promise<V1Pod[]> {
    const { core, namespace } = this.cluster;
    return (await core.listNamespacedPod({ namespace, labelSelector: this.labelSelector })).items;
  }

  private async policies(): Promise<string[]> {
    const { networking, namespace } = this.cluster;
    const { items } = await networking.listNamespacedNetworkPolicy({
      namespace,
      labelSelector: this.labelSelector,
    });
    return items.flatMap(({ metadata }) => metadata?.name ?? []);
  }

  private labelsOf(role: Role): Record<string, string> {
    return { [PROBE_LABEL]: this.options.instanceId, [ROLE_LABEL]: role };
  }

  private podOf(role: Role): V1Pod {
    const { architecture, image, programs, runtimeClass } = this.options;
    const amounts = { cpu: '10m', memory: '32Mi' };
    return {
      metadata: {
        name: this.nameOf(role),
        labels: { 'app.kubernetes.io/managed-by': 'sandkeep', ...this.labelsOf(role) },
      },
      spec: {
        restartPolicy: 'Never',
        activeDeadlineSeconds: LIFETIME_SECS,
        automountServiceAccountToken: false,
        enableServiceLinks: false,
        nodeSelector: { 'kubernetes.io/os': 'linux', 'kubernetes.io/arch': architecture },
        ...(runtimeClass === undefined ? {} : { runtimeClassName: runtimeClass }),
        ...(role === 'client' ? { affinity: this.sameNode() } : {}),
        securityContext: {
          runAsNonRoot: true,
          runAsUser: NOBODY,
          runAsGroup: NOBODY,
          seccompProfile: { type: 'RuntimeDefault' },
        },
        containers: [
          {
            name: CONTAINER,
            image,
            imagePullPolicy: 'IfNotPresent',
            command: [INIT_PROGRAM],
            args: role === 'server' ? [`--listen=${PROBE_PORT}`] : [],
            resources: { limits: amounts, requests: amounts },
            securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } },
            volumeMounts: [{ name: programs.name, mountPath: PROGRAMS_DIRECTORY, readOnly: true }],
          },
        ],
        volumes: [programs],
      },
    };
  }

  /** Traffic within a node is what networks most often leave unfiltered. */
  private sameNode() {
    const term = {
      topologyKey: 'kubernetes.io/hostname',
      labelSelector: { matchLabels: this.labelsOf('server') },
    };
    return { podAffinity: { requiredDuringSchedulingIgnoredDuringExecution: [term] } };
  }
}

function isRunning({ status }: V1Pod): boolean {
  return status?.phase === 'Running' && status.podIP !== undefined;
}

function explainPod(pod: V1Pod): string | undefined {
  return explainWaiting(pod, pod.status?.containerStatuses?.[0]);
}

function unscheduled({ status }: V1Pod): string | undefined {
  const scheduled = status?.conditions?.find(({ type }) => type === 'PodScheduled');
  return scheduled?.status === 'False' ? scheduled.message : undefined;
}
