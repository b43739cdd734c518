import { mkdirSync, readlinkSync, writeFileSync } from 'node:fs';
import { release } from 'node:os';
import { join } from 'node:path';
import type { EngineInfo } from './engine-info.js';

const ROOT = '/sys/fs/cgroup';
export const CONTROL_GROUP = '/sandkeep';
/** A process or service of the machine has 1024, or 100 in version 2. */
export const WEIGHT = { shares: 256, weight: 25 };
const INITIAL_NAMESPACE = 'cgroup:[4026531835]';

/** All sandboxes of the machine share its weight of the CPU. Undefined: the engine chooses the group, as with systemd. */
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
