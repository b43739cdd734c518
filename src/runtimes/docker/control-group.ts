import { mkdirSync, readdirSync, readlinkSync, rmdirSync, writeFileSync } from 'node:fs';
import { release } from 'node:os';
import { join } from 'node:path';
import type { EngineInfo } from './engine-info.js';

const ROOT = '/sys/fs/cgroup';
/** Installations on one machine share it, as containers share that of the engine. */
export const CONTROL_GROUP = '/sandkeep';
/** A process or service of the machine has 1024, or 100 in version 2. */
export const WEIGHT = { shares: 256, weight: 25 };
/** The first control group namespace, in which the engine names its groups. */
const FIRST_NAMESPACE = 'cgroup:[4026531835]';

/**
 * Makes the control group in which sandboxes share one weight of the CPU, however many they are. Without one, an engine
 * that manages its groups itself gives all containers as much as one process of the machine. With systemd each container
 * is a sibling of the services, and its own weight is enough. Undefined: the engine chooses the group.
 */
export function openControlGroup(info: EngineInfo): string | undefined {
  const { CgroupDriver, CgroupVersion, KernelVersion } = info;
  if (CgroupDriver !== 'cgroupfs' || KernelVersion !== release()) return undefined;
  try {
    if (readlinkSync('/proc/self/ns/cgroup') !== FIRST_NAMESPACE) return undefined;
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

/** Does nothing while another installation uses it. */
export function removeControlGroup(): void {
  for (const place of ['', ...listOf(ROOT)]) {
    try {
      rmdirSync(join(ROOT, place, CONTROL_GROUP));
    } catch {
      // It does not exist, or has sandboxes.
    }
  }
}

function write(hierarchy: string, file: string, value: number): void {
  const directory = join(hierarchy, CONTROL_GROUP);
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, file), String(value));
}

function listOf(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}
