import { statfs } from 'node:fs/promises';
import { dirname } from 'node:path';
import { ignoreMissing } from '../guest-path.js';

/**
 * statfs(2) of file systems that one machine mounts at a time: two machines that mount one image destroy its file
 * system.
 */
const LOCAL = new Map([
  [0xef53, 'ext4'],
  [0x58465342, 'xfs'],
  [0x9123683e, 'btrfs'],
  [0x2fc12fc1, 'zfs'],
  [0xf2f52010, 'f2fs'],
  [0x01021994, 'tmpfs'],
]);

/** Looks at the nearest directory that exists. */
export async function isLocalFileSystem(path: string): Promise<boolean> {
  const found = await statfs(path).catch(ignoreMissing);
  if (found) return LOCAL.has(found.type >>> 0);
  const above = dirname(path);
  return above !== path && isLocalFileSystem(above);
}
