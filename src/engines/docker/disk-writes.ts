import { existsSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

/** MiB a second that a sandbox writes to a disk. A write-ahead log on the same disk waits for what others flush. */
export const DISK_WRITES = { default: 64, most: 1_000_000 };

/**
 * The disks below the file systems of the paths, such as `/dev/sda`. Without those that have no device on this machine.
 */
export function disksOf(paths: readonly string[]): string[] {
  return [...new Set(paths.flatMap((path) => diskOf(path) ?? []))];
}

function diskOf(path: string): string | undefined {
  try {
    const device = realpathSync(join('/sys/dev/block', numberOf(path)));
    // The kernel bounds whole disks, not their partitions.
    const disk = existsSync(join(device, 'partition')) ? dirname(device) : device;
    const file = join('/dev', basename(disk).replaceAll('!', '/'));
    return existsSync(file) ? file : undefined;
  } catch {
    return undefined;
  }
}

/** As `8:1`. Btrfs numbers its subvolumes itself, so its device is that of the mount. */
function numberOf(path: string): string {
  const { dev } = statSync(path, { bigint: true });
  const own = makedevText(dev);
  if (!own.startsWith('0:')) return own;
  const mounts = readFileSync('/proc/self/mountinfo', 'utf8').split('\n');
  const mount = mounts.find((line) => line.split(' ')[2] === own);
  return makedevText(statSync(mount!.split(' - ')[1]!.split(' ')[1]!, { bigint: true }).rdev);
}

function makedevText(dev: bigint): string {
  const major = ((dev >> 8n) & 0xfffn) | ((dev >> 32n) & ~0xfffn);
  const minor = (dev & 0xffn) | ((dev >> 12n) & 0xffffff00n);
  return `${major}:${minor}`;
}
