import type { Sql } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import type { RunMount } from '../runtimes/runtime.js';
import { getHostVolume, lockActiveVolumes } from '../volumes/queries.js';
import type { MountRequest } from './mount-schema.js';
import type { CreateSandboxRequest } from './schema.js';

/** The volumes that the mounts of a request are of. */
export interface MountVolumes {
  /** Ids by name. */
  named: ReadonlyMap<string, string>;
  /** The id of the organization's host volume, when something of it is mounted. */
  host: string | undefined;
}

/** Finds the volumes that are mounted; each named one must exist and not be on its way out. */
export async function volumesOf(
  tx: Sql,
  orgId: string,
  { mounts = [] }: CreateSandboxRequest,
): Promise<MountVolumes> {
  const host = mounts.some(({ type }) => type === 'bind') ? await getHostVolume(tx, orgId) : undefined;
  const names = [...new Set(mounts.flatMap((mount) => (mount.type === 'named' ? [mount.name] : [])))];
  const found = names.length === 0 ? [] : await lockActiveVolumes(tx, orgId, names);
  const named = new Map(found.map(({ id, name }) => [name, id]));
  const missing = names.find((name) => !named.has(name));
  if (missing !== undefined) {
    const index = mounts.findIndex((mount) => mount.type === 'named' && mount.name === missing);
    throw new ApiError('volume_not_found', `there is no volume with the name "${missing}"`, {
      field: `mounts[${index}].name`,
    });
  }
  return { named, host: host?.id };
}

/** The mounts as the runtime is given them: with the ids of their volumes. */
export function withVolumes(mounts: readonly MountRequest[], { named, host }: MountVolumes): RunMount[] {
  return mounts.map((mount) => {
    switch (mount.type) {
      case 'named':
        return { ...mount, volumeId: named.get(mount.name)! };
      case 'bind':
        return { ...mount, volumeId: host! };
      case 'tmpfs':
      case 'disk_image':
        return mount;
    }
  });
}
