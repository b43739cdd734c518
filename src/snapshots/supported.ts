import { ApiError } from '../http/errors.js';
import type { Runtime } from '../engine/runtime.js';

export function refuseWithoutSnapshots({ name, capabilities }: Runtime): void {
  if (capabilities.has('disk_snapshots')) return;
  throw new ApiError(
    'not_supported',
    `the ${name} runtime makes no snapshots: keep files in a volume, or build an image, and create sandboxes with it`,
    { capability: 'disk_snapshots' },
  );
}
