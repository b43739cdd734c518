import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe } from 'vitest';

const MIB = 1024 ** 2;

const isThere =
  process.getuid?.() === 0 && spawnSync('mkfs.ext4', ['-V']).status === 0 && existsSync('/dev/loop-control');
if (!isThere)
  console.warn('the tests of a full disk are SKIPPED: they need root, mkfs.ext4 and loop devices');

type Describe = (name: string, body: () => void) => unknown;

/** Runs the tests where a small disk can be made, and `describeEngine` runs them. */
export function onSmallDisk(describeEngine: Describe): Describe {
  return isThere ? describeEngine : describe.skip;
}

/** Makes a disk of its own in `folder`, and returns the directory that it is mounted on. */
export function mountSmallDisk(folder: string, mib: number): string {
  const root = join(folder, 'root');
  const disk = join(folder, 'disk');
  mkdirSync(root);
  writeFileSync(disk, '');
  truncateSync(disk, mib * MIB);
  execFileSync('mkfs.ext4', ['-q', '-m', '0', disk]);
  execFileSync('mount', ['-o', 'loop', disk, root]);
  chmodSync(root, 0o755);
  return root;
}

export function unmountSmallDisk(root: string): void {
  execFileSync('umount', ['--lazy', root]);
}
