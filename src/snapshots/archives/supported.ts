import type { Runtime } from '../../engine/runtime.js';
import type { EngineArchives } from '../../engine/snapshot-archives.js';
import { ApiError } from '../../http/errors.js';
import { refuseWithoutSnapshots } from '../supported.js';

/** Throws `not_supported`. */
export function archivesOf(runtime: Runtime): EngineArchives {
  refuseWithoutSnapshots(runtime);
  const { snapshotArchives } = runtime;
  if (snapshotArchives) return snapshotArchives;
  throw new ApiError(
    'not_supported',
    `the ${runtime.name} runtime has no archives of snapshots: move files through a volume, or build an image`,
    {
      capability: 'disk_snapshots',
    },
  );
}
