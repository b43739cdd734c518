import type { KubernetesObject, V1Namespace, V1ResourceQuota, V1RoleBinding } from '@kubernetes/client-node';
import { ExplainedError } from '../../lib/explained-error.js';
import { sleep } from '../../lib/sleep.js';
import { NoRoomError, StartRefusedError, type Run } from '../../engine/runtime.js';
import type { Cluster } from './client.js';
import { clusterMessage, CONFLICT, FORBIDDEN, ignoreStatus, NOT_FOUND, statusOf } from './errors.js';
import { rightsOf } from './manifest.js';
import { INSTANCE_LABEL, ORG_LABEL, ORGANIZATION_BINDING, selectorOf } from './names.js';
import type { NamespaceChoice } from './namespace-choices.js';
import { deniedAmong, readOrganizationBinding } from './review-rights.js';

const QUOTA = 'sandkeep-runs';
const LONGEST_NAME = 63;
const UUID_LENGTH = 36;
/** Somebody may change or remove the contents while the service runs. */
const ENSURE_EVERY_MS = 60_000;
/** A cluster creates the account of a new namespace, grants its rights and counts its quota some time later. */
const SETTLED_MS = 30_000;
const POLL_MS = 200;
const PAGE = 500;

/** Something that each namespace has before its first Pod. */
export interface Content {
  ensure(namespace: string): Promise<void>;
}

/** The namespaces of sandboxes: one for all organizations, or one for each of them. */
export class Namespaces {
  private readonly ensured = new Map<string, { at: number; mostRuns: number | null }>();
  private readonly ensuring = new Map<string, Promise<void>>();
  private readonly settledAt = new Map<string, number>();

  private constructor(
    private readonly cluster: Cluster,
    private readonly instanceId: string,
    /** Undefined: there is one for all. */
    private readonly binding: Pick<V1RoleBinding, 'roleRef' | 'subjects'> | undefined,
  ) {}

  /** Throws ExplainedError when the cluster is not prepared for the choice. */
  static async open(cluster: Cluster, instanceId: string, choice: NamespaceChoice): Promise<Namespaces> {
    if (choice === 'shared') return new Namespaces(cluster, instanceId, undefined);
    const { namespace } = cluster;
    const longest = LONGEST_NAME - UUID_LENGTH - 1;
    if (namespace.length > longest) {
      throw new ExplainedError(
        `the namespaces of organizations are named "${namespace}-<organization id>", which is too long: choose a --kubernetes-namespace of at most ${longest} characters`,
      );
    }
    const remedy = `run "sandkeep kubernetes manifest --namespaces each-organization --namespace ${namespace} | kubectl apply -f -"`;
    const binding = await readOrganizationBinding(cluster);
    if (!binding) {
      throw new ExplainedError(
        `the namespace "${namespace}" has no RoleBinding "${ORGANIZATION_BINDING}" that the account may read: ${remedy}`,
      );
    }
    const denied = await deniedAmong(cluster, rightsOf(namespace, binding.roleRef.name).needed);
    if (denied.length > 0) throw new ExplainedError(`the account may not: ${denied.join('; ')}: ${remedy}`);
    return new Namespaces(cluster, instanceId, binding);
  }

  get areApart(): boolean {
    return this.binding !== undefined;
  }

  get description(): string {
    const { namespace } = this.cluster;
    return this.areApart
      ? `in a namespace of each organization, ${namespace}-<id>,`
      : `in the namespace ${namespace}`;
  }

  of(orgId: string): string {
    return this.areApart ? `${this.cluster.namespace}-${orgId}` : this.cluster.namespace;
  }

  /** Others of the cluster may give objects of their own namespaces the labels of the service. */
  owns({ metadata }: KubernetesObject): boolean {
    const { namespace, labels = {} } = metadata ?? {};
    return namespace === this.cluster.namespace || namespace === this.of(labels[ORG_LABEL] ?? '');
  }

  pathOf(resource: string): string {
    return this.areApart ? `/api/v1/${resource}` : `/api/v1/namespaces/${this.cluster.namespace}/${resource}`;
  }

  /** Those that exist. */
  async all(): Promise<string[]> {
    const { core, namespace } = this.cluster;
    const found = [namespace];
    if (!this.areApart) return found;
    let next: string | undefined;
    do {
      const page = await core.listNamespace({
        labelSelector: selectorOf(this.instanceId),
        limit: PAGE,
        ...(next ? { _continue: next } : {}),
      });
      found.push(...page.items.filter((item) => this.isOurs(item)).map(({ metadata }) => metadata!.name!));
      ({ _continue: next } = page.metadata ?? {});
    } while (next);
    return found;
  }

  /** Creates what the namespace of a run lacks. Throws StartRefusedError. */
  async ensure({ orgId, mostRuns = null }: Run, contents: readonly Content[]): Promise<void> {
    const namespace = this.of(orgId);
    const known = this.ensured.get(namespace);
    if (known?.mostRuns === mostRuns && performance.now() - known.at < ENSURE_EVERY_MS) return;
    const under = this.ensuring.get(namespace) ?? this.ensureNow(orgId, mostRuns, contents);
    this.ensuring.set(namespace, under);
    await under.finally(() => this.ensuring.delete(namespace));
  }

  /** The next run looks at its namespace again. */
  forget(namespace?: string): void {
    if (namespace === undefined) this.ensured.clear();
    else this.ensured.delete(namespace);
  }

  /** Repeats `work` while a new namespace is not settled. */
  async whenSettled<T>(namespace: string, work: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await work();
      } catch (error) {
        if (performance.now() > (this.settledAt.get(namespace) ?? 0) || !isUnsettled(error)) throw error;
      }
      await sleep(POLL_MS);
    }
  }

  private async ensureNow(
    orgId: string,
    mostRuns: number | null,
    contents: readonly Content[],
  ): Promise<void> {
    const namespace = this.of(orgId);
    if (this.binding) {
      await this.ensureNamespace(orgId, namespace);
      await this.bind(namespace, this.binding);
      if (!this.settledAt.has(namespace)) this.settledAt.set(namespace, performance.now() + SETTLED_MS);
      await this.whenSettled(namespace, async () => this.limit(namespace, mostRuns));
    }
    for (const content of contents) {
      await this.whenSettled(namespace, async () => content.ensure(namespace));
    }
    this.ensured.set(namespace, { at: performance.now(), mostRuns });
  }

  private async ensureNamespace(orgId: string, name: string): Promise<void> {
    const { core } = this.cluster;
    const found = await core.readNamespace({ name }).catch(ignoreStatus(NOT_FOUND));
    if (!found) {
      this.settledAt.delete(name);
      const labels = {
        ...this.labels,
        [ORG_LABEL]: orgId,
        'pod-security.kubernetes.io/enforce': 'baseline',
      };
      await core.createNamespace({ body: { metadata: { name, labels } } });
    } else if (!this.isOurs(found)) {
      throw new StartRefusedError(
        `the cluster has another namespace ${name}, which has not the labels ${INSTANCE_LABEL}=${this.instanceId} and ${ORG_LABEL}=${orgId}`,
      );
    } else if (found.metadata?.deletionTimestamp !== undefined) {
      throw new NoRoomError(`the cluster is deleting the namespace ${name}`);
    }
  }

  private async bind(namespace: string, binding: Pick<V1RoleBinding, 'roleRef' | 'subjects'>): Promise<void> {
    const { library, config } = this.cluster;
    const { roleRef, subjects } = binding;
    const metadata = { name: ORGANIZATION_BINDING, labels: this.labels };
    await config
      .makeApiClient(library.RbacAuthorizationV1Api)
      .createNamespacedRoleBinding({
        namespace,
        body: { metadata, roleRef, ...(subjects ? { subjects } : {}) },
      })
      .catch(ignoreStatus(CONFLICT));
  }

  /**
   * The quota of the cluster counts a Pod until it has ended, and that of the service only until its stop is wanted.
   */
  private async limit(namespace: string, mostRuns: number | null): Promise<void> {
    const { core } = this.cluster;
    const spec = mostRuns === null ? {} : { hard: { pods: String(mostRuns) } };
    const body: V1ResourceQuota = { metadata: { name: QUOTA, labels: this.labels }, spec };
    const replaced = await core
      .replaceNamespacedResourceQuota({ name: QUOTA, namespace, body })
      .catch(ignoreStatus(NOT_FOUND));
    if (replaced || mostRuns === null) return;
    await core.createNamespacedResourceQuota({ namespace, body });
    this.settledAt.set(namespace, performance.now() + SETTLED_MS);
  }

  private isOurs({ metadata }: V1Namespace): boolean {
    const { [INSTANCE_LABEL]: instanceId, [ORG_LABEL]: orgId } = metadata?.labels ?? {};
    return instanceId === this.instanceId && metadata?.name === this.of(orgId ?? '');
  }

  private get labels(): Record<string, string> {
    return { 'app.kubernetes.io/managed-by': 'sandkeep', [INSTANCE_LABEL]: this.instanceId };
  }
}

function isUnsettled(error: unknown): boolean {
  if (statusOf(error) !== FORBIDDEN) return false;
  return /service ?account|cannot \w+ resource|status unknown for quota/i.test(clusterMessage(error));
}
