import type { Runtime } from '../../engine/runtime.js';
import type { EngineArchives } from '../../engine/snapshot-archives.js';
import { ApiError } from '../../http/errors.js';
import { refuseWithoutSnapshots } from '../supported.js';

/** Throws `not_supported`. */
export function archivesOf(runtime: Runtime): EngineArchives {
  refuseWithoutSnapshots(runtime);
  const { snapshotArchives } = runtime;
  if (snapshotArchives) return snapshotArchives;
  throw new ApiError('not_supported', `the ${runtime.name} runtime keeps snapshots in its engine`, {
    capability: 'disk_snapshots',
  });
}
