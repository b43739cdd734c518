import { mkdirSync, readlinkSync, writeFileSync } from 'node:fs';
import { release } from 'node:os';
import { join } from 'node:path';
import type { EngineInfo } from './engine-info.js';

const ROOT = '/sys/fs/cgroup';
/** Installations on one machine share it, as containers share the group of the engine. */
export const CONTROL_GROUP = '/sandkeep';
/** A process or service of the machine has 1024, or 100 in version 2. */
export const WEIGHT = { shares: 256, weight: 25 };
/** The first control group namespace, a fixed inode of the kernel. The engine names its groups in it. */
const INITIAL_NAMESPACE = 'cgroup:[4026531835]';

/**
 * Makes the control group in which all sandboxes of the machine share one weight of the CPU, however many they are.
 * Without it, an engine that manages its groups itself gives all containers together the weight of one process of the
 * machine. With that weight the main thread of the service waited up to 400 ms for a CPU. Undefined: the engine chooses
 * the group. With systemd each container is a sibling of the services of the machine, and its own weight is enough.
 */
export function openControlGroup(info: EngineInfo): string | undefined {
  const { CgroupDriver, CgroupVersion, KernelVersion } = info;
  if (CgroupDriver !== 'cgroupfs' || KernelVersion !== release()) return undefined;
  try {
    if (readlinkSync('/proc/self/ns/cgroup') !== INITIAL_NAMESPACE) return undefined;
    if (CgroupVersion === '2') {
      writeFileSync(join(ROOT, 'cgroup.subtree_control'), '+cpu');
      write(ROOT, 'cpu.weight', WEIGHT.weight);
    } else {
      write(join(ROOT, 'cpu'), 'cpu.shares', WEIGHT.shares);
    }
    return CONTROL_GROUP;
  } catch {
    // Without root, or where the file system is read-only.
    return undefined;
  }
}

function write(hierarchy: string, file: string, value: number): void {
  const directory = join(hierarchy, CONTROL_GROUP);
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, file), String(value));
}
