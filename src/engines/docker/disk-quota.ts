import type Docker from 'dockerode';
import { randomUUID } from 'node:crypto';
import { posix } from 'node:path';
import { pack } from 'tar-stream';
import { StartRefusedError } from '../../engine/runtime.js';
import type { RunSpec } from '../../spec/run-spec.js';
import { engineMessage } from './errors.js';
import type { EngineImage } from './images/engine-image.js';

/** Other drivers may accept a size and ignore it. */
const DRIVERS_WITH_QUOTA = new Set(['overlay2', 'btrfs', 'zfs']);
const PROBE_SIZE = '64m';

export interface StorageInfo {
  Driver: string;
  DriverStatus: [key: string, value: string][] | null;
}

/**
 * Probes the quota by a container from an empty image. Undefined: the engine bounds the disks of containers; otherwise
 * the reason.
 */
export async function explainNoDiskQuota(
  docker: Docker,
  { Driver, DriverStatus }: StorageInfo,
): Promise<string | undefined> {
  if (!DRIVERS_WITH_QUOTA.has(Driver)) return `the storage driver ${Driver} bounds no disks`;
  const backingFileSystem = DriverStatus?.find(([key]) => key === 'Backing Filesystem')?.[1];
  // overlay2 has project quotas on xfs only.
  if (Driver === 'overlay2' && backingFileSystem !== 'xfs') {
    return `the storage driver overlay2 bounds disks on xfs with pquota only, and this is ${backingFileSystem ?? 'another file system'}`;
  }
  const image = `sandkeep-probe:${randomUUID()}`;
  try {
    await importEmptyImage(docker, image);
    const container = await docker.createContainer({
      Image: image,
      Cmd: ['/none'],
      HostConfig: { StorageOpt: { size: PROBE_SIZE } },
    });
    await container.remove();
    return undefined;
  } catch (error) {
    return `the engine says: ${engineMessage(error)}`;
  } finally {
    await docker
      .getImage(image)
      .remove({ force: true })
      .catch(() => undefined);
  }
}

async function importEmptyImage(docker: Docker, image: string): Promise<void> {
  const archive = pack();
  archive.finalize();
  const [repo, tag] = image.split(':');
  const progress = await docker.importImage(archive, { repo, tag });
  await new Promise<void>((resolve, reject) => {
    docker.modem.followProgress(progress, (error) => (error ? reject(error) : resolve()));
  });
}

/** A volume of the image is outside the disk limit. Throws StartRefusedError. */
export function checkDiskLimit({ diskMib, mounts }: RunSpec, { volumes }: EngineImage): void {
  const unlimited = volumes.find((path) => !mounts.some(({ guest }) => guest === posix.normalize(path)));
  if (diskMib === null || unlimited === undefined) return;
  throw new StartRefusedError(
    `resources.disk_size_mib cannot limit the volume that the image declares at ${unlimited}: mount something there, or leave disk_size_mib out`,
  );
}
