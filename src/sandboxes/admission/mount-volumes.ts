import type { Sql } from '../../db/pool.js';
import { ApiError } from '../../http/errors.js';
import type { Runtime } from '../../engine/runtime.js';
import type { MountVolumes } from '../../spec/run-spec.js';
import { getHostVolume, lockActiveVolumes } from '../../volumes/queries.js';
import type { CreateSandboxRequest } from '../../spec/specification.js';

/** Throws when a mounted volume is missing or on its way out, or has a cap that the runtime cannot enforce. */
export async function volumesOf(
  tx: Sql,
  orgId: string,
  { mounts = [] }: Pick<CreateSandboxRequest, 'mounts'>,
  runtime: Runtime,
): Promise<MountVolumes> {
  const isOfHost = mounts.some(({ type }) => type === 'bind' || type === 'disk_image');
  const host = isOfHost ? await getHostVolume(tx, orgId) : undefined;
  const names = [...new Set(mounts.flatMap((mount) => (mount.type === 'named' ? [mount.name] : [])))];
  const found = names.length === 0 ? [] : await lockActiveVolumes(tx, orgId, names);
  const named = new Map(found.map(({ id, name }) => [name, id]));
  const missing = names.find((name) => !named.has(name));
  if (missing !== undefined) {
    throw new ApiError('volume_not_found', `there is no volume with the name "${missing}"`, {
      field: fieldOf(missing),
    });
  }
  const capped = found.find(({ capacity_gib }) => capacity_gib !== null);
  if (capped && !runtime.capabilities.has('volume_caps')) {
    throw new ApiError(
      'invalid_sandbox_config',
      `the volume "${capped.name}" has a cap, which the ${runtime.name} runtime cannot hold sandboxes to; remove the cap: PATCH /v1/volumes/${capped.id} with {"capacity_gib":null}`,
      { field: fieldOf(capped.name) },
    );
  }
  return { named, host: host?.id };

  function fieldOf(name: string): string {
    return `mounts[${mounts.findIndex((mount) => mount.type === 'named' && mount.name === name)}].name`;
  }
}
