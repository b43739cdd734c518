import type { StorageInfo } from '../disk-quota.js';

/** An image store of layers that graph drivers keep: it gives a new configuration to layers that it has. */
const DRIVERS = new Set(['overlay2', 'fuse-overlayfs', 'btrfs', 'zfs', 'vfs']);

/** Undefined: the engine makes snapshots. */
export function explainNoSnapshots({ Driver, DriverStatus }: StorageInfo): string | undefined {
  const type = DriverStatus?.find(([key]) => key === 'driver-type')?.[1];
  if (DRIVERS.has(Driver) && type === undefined) return undefined;
  return `its images are in ${type ?? `the store of the driver ${Driver}`}, and snapshots need a graph driver of Docker, such as overlay2`;
}
