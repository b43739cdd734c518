import type { V1PersistentVolumeClaim } from '@kubernetes/client-node';
import { StartRefusedError, type EngineVolumes, type Run } from '../../engine/runtime.js';
import type { Capability } from '../../spec/capabilities.js';
import type { Cluster } from './client.js';
import { clusterMessage, CONFLICT, FORBIDDEN, ignoreStatus, INVALID, NOT_FOUND, statusOf } from './errors.js';
import { claimName, INSTANCE_LABEL, ORG_LABEL, selectorOf, VOLUME_LABEL } from './names.js';
import type { Namespaces } from './namespaces.js';
import { quantity } from './quantity.js';
import type { AccessChoice, SizeChoice } from './volume-choices.js';
import { volumesOf } from './volume-mounts.js';
import { WatchCache } from './watch-cache.js';

export interface StorageOptions {
  /** Default: the cluster's own. */
  storageClass?: string | undefined;
  defaultMib?: number | undefined;
  access?: AccessChoice | undefined;
  sizes?: SizeChoice | undefined;
}

const DEFAULT_MIB = 10_240;
const MIB_OF_GIB = 1_024;
const KIB = 1_024;
const REFUSALS = new Set([400, FORBIDDEN, INVALID]);

/** The claims of the cluster's storage, one for each volume, from its first use to its purge. */
export class Claims implements EngineVolumes {
  readonly access: AccessChoice;

  private constructor(
    private readonly cluster: Cluster,
    private readonly instanceId: string,
    private readonly options: StorageOptions,
    private readonly namespaces: Namespaces,
    private readonly cache: WatchCache<V1PersistentVolumeClaim>,
  ) {
    this.access = options.access ?? 'ReadWriteOnce';
  }

  /** Undefined without the right to create claims. */
  static async open(
    cluster: Cluster,
    instanceId: string,
    options: StorageOptions,
    namespaces: Namespaces,
  ): Promise<Claims | undefined> {
    const { core, namespace, authorization } = cluster;
    const resourceAttributes = { namespace, verb: 'create', resource: 'persistentvolumeclaims' };
    const { status } = await authorization.createSelfSubjectAccessReview({
      body: { spec: { resourceAttributes } },
    });
    if (status?.allowed !== true) return undefined;
    const cache = new WatchCache<V1PersistentVolumeClaim>(cluster, {
      path: namespaces.pathOf('persistentvolumeclaims'),
      labelSelector: selectorOf(instanceId),
      accepts: (claim) => namespaces.owns(claim),
      list: (page) =>
        namespaces.areApart
          ? core.listPersistentVolumeClaimForAllNamespaces(page)
          : core.listNamespacedPersistentVolumeClaim({ namespace, ...page }),
    });
    await cache.relist();
    return new Claims(cluster, instanceId, options, namespaces, cache);
  }

  get capabilities(): Capability[] {
    return ['named_volumes', ...(this.options.sizes === 'enforced' ? (['volume_caps'] as const) : [])];
  }

  /** Creates what the volumes of a run lack, and lets them grow to their caps. Throws StartRefusedError. */
  async ensure(run: Run): Promise<void> {
    for (const volumeId of volumesOf(run.spec)) {
      const capMib = (run.capsGib?.get(volumeId) ?? 0) * MIB_OF_GIB;
      try {
        await this.ensureOne(run.orgId, volumeId, capMib === 0 ? undefined : capMib);
      } catch (error) {
        if (!REFUSALS.has(statusOf(error) ?? 0)) throw error;
        const name = run.spec.mounts.flatMap((mount) =>
          mount.type === 'named' && mount.volumeId === volumeId ? [mount.name] : [],
        )[0];
        throw new StartRefusedError(
          `the cluster refused storage for the volume "${name}": ${clusterMessage(error)}`,
          { cause: error },
        );
      }
    }
  }

  requestedKib(volumeId: string): number | undefined {
    const claim = this.cache.get(claimName(volumeId));
    return claim && requestedKib(claim);
  }

  /** The smaller of the request and the storage: the growth of one may be under way. */
  allocatedKib(volumeId: string): number | undefined {
    this.cache.assertReached();
    const claim = this.cache.get(claimName(volumeId));
    if (claim?.status?.phase !== 'Bound') return undefined;
    const held = Math.floor(quantity(claim.status.capacity?.['storage']) / KIB);
    return held === 0 ? undefined : Math.min(held, requestedKib(claim));
  }

  list(): { orgId: string; volumeId: string }[] {
    this.cache.assertReached();
    return this.cache.known().flatMap(({ metadata }) => {
      const { [ORG_LABEL]: orgId, [VOLUME_LABEL]: volumeId } = metadata?.labels ?? {};
      return orgId === undefined || volumeId === undefined ? [] : [{ orgId, volumeId }];
    });
  }

  /** The cluster keeps a claim until no Pod mounts it. */
  async remove(orgId: string, volumeId: string): Promise<void> {
    const namespace = this.namespaces.of(orgId);
    await this.cluster.core
      .deleteNamespacedPersistentVolumeClaim({ namespace, name: claimName(volumeId) })
      .catch(ignoreStatus(NOT_FOUND));
  }

  async relist(): Promise<void> {
    await this.cache.relist();
  }

  async close(): Promise<void> {
    await this.cache.close();
  }

  private async ensureOne(orgId: string, volumeId: string, capMib: number | undefined): Promise<void> {
    const { core, library } = this.cluster;
    const namespace = this.namespaces.of(orgId);
    const name = claimName(volumeId);
    const claim = this.cache.get(name);
    const { storageClass, defaultMib = DEFAULT_MIB } = this.options;
    const requests = { storage: `${capMib ?? defaultMib}Mi` };
    if (!claim) {
      const create = async () =>
        core.createNamespacedPersistentVolumeClaim({
          namespace,
          body: {
            metadata: {
              name,
              labels: {
                'app.kubernetes.io/managed-by': 'sandkeep',
                [INSTANCE_LABEL]: this.instanceId,
                [ORG_LABEL]: orgId,
                [VOLUME_LABEL]: volumeId,
              },
            },
            spec: {
              accessModes: [this.access],
              resources: { requests },
              ...(storageClass === undefined ? {} : { storageClassName: storageClass }),
            },
          },
        });
      await this.namespaces.whenSettled(namespace, create).catch(ignoreStatus(CONFLICT));
      return;
    }
    if (claim.metadata?.deletionTimestamp !== undefined) {
      throw new Error(`the cluster is deleting the claim ${name}`);
    }
    if (capMib === undefined || capMib * KIB <= requestedKib(claim)) return;
    await core.patchNamespacedPersistentVolumeClaim(
      { namespace, name, body: { spec: { resources: { requests } } } },
      library.setHeaderOptions('Content-Type', library.PatchStrategy.MergePatch),
    );
  }
}

function requestedKib({ spec }: V1PersistentVolumeClaim): number {
  return Math.floor(quantity(spec?.resources?.requests?.['storage']) / KIB);
}
