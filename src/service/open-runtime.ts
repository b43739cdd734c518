import { setServedRuntime } from '../db/instance-queries.js';
import type { PgPool } from '../db/pool.js';
import type { DiskReserve } from '../disk/disk-reserve.js';
import { storedImageAccess } from '../registry/stored-access.js';
import { ExplainedError } from '../lib/explained-error.js';
import { openRuntime } from '../engines/open.js';
import { planRuntime } from '../engines/plan.js';
import { readInstallation } from '../engines/queries.js';
import type { GatewayServices } from '../engine/definition.js';
import type { Capacity, Runtime } from '../engine/runtime.js';
import { leftToOtherRuntimes } from '../sandboxes/reconcile/queries.js';
import { registryReach } from '../settings.js';
import { VolumeStore } from '../volumes/storage/store.js';
import type { ServiceOptions, Startup } from './startup.js';

export async function openServedRuntime(
  { options, log, resources }: Startup,
  pool: PgPool,
  instanceId: string,
  { volumes, disk, gateway }: { volumes: VolumeStore; disk: DiskReserve; gateway: GatewayServices },
): Promise<{ runtime: Runtime; fallback: string | undefined }> {
  const plan = planRuntime(
    { choice: options.runtime, change: options.changeRuntime ?? false },
    await readInstallation(pool),
  );
  const { runtime, fallback } = await openRuntime(
    plan,
    options,
    {
      instanceId,
      volumes,
      dataDir: options.dataDir,
      capacity: capacityOf(options),
      defaultDiskMib: options.defaultDiskMib,
      bandwidthMbits: options.sandboxBandwidthMbits,
      sharedCpuMillis: options.sharedCpuMillis,
      pulls: {
        reach: registryReach(options),
        access: storedImageAccess(pool),
        maxMib: options.imageMaxMib,
        maxMibOfOrg: options.orgImagesMaxMib,
        disk,
      },
      gateway,
    },
    log,
  );
  resources.add('the runtime', () => runtime.close());
  await setServedRuntime(pool, runtime.name);
  for (const { name, count } of await leftToOtherRuntimes(pool, runtime.name)) {
    log.warn(
      { otherRuntime: name, count },
      'sandboxes of another runtime stay as they are until it is served again',
    );
  }
  return { runtime, fallback };
}

function capacityOf(options: ServiceOptions): Partial<Capacity> {
  const { capacityVcpus: vcpus, capacityMemoryMib: memoryMib, capacityDiskMib: diskMib } = options;
  return {
    ...(vcpus === undefined ? {} : { vcpus }),
    ...(memoryMib === undefined ? {} : { memoryMib }),
    ...(diskMib === undefined ? {} : { diskMib }),
  };
}

export async function openVolumes({ volumesDir }: ServiceOptions): Promise<VolumeStore> {
  const volumes = new VolumeStore(volumesDir);
  await volumes.prepare().catch((cause: unknown) => {
    throw new ExplainedError(
      `cannot use the directory ${volumesDir} for the data of volumes (${(cause as Error).message}): choose another with --volumes-dir`,
      { cause },
    );
  });
  return volumes;
}
