import { ApiError } from '../http/errors.js';
import type { Runtime } from '../engine/runtime.js';

export function refuseWithoutSnapshots({ name, capabilities }: Runtime): void {
  if (capabilities.has('disk_snapshots')) return;
  const remedy =
    name === 'docker'
      ? 'let the operator run "sandkeep doctor", which shows the reason'
      : 'build an image, and create sandboxes with it';
  throw new ApiError(
    'not_supported',
    `the ${name} runtime makes no snapshots: keep files in a volume, or ${remedy}`,
    { capability: 'disk_snapshots' },
  );
}
