import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

const ROOT = '/sys/fs/cgroup';
const CONTROLLERS = ['cpu', 'memory', 'pids'] as const;
const KIB = 1024;

/** The control group of a process. In version 2 there is one for all controllers. */
function groupOf(pid: number, controller: (typeof CONTROLLERS)[number]): string {
  const lines = readFileSync(`/proc/${pid}/cgroup`, 'utf8').trim().split('\n');
  const parts = lines.map((line) => /^\d+:([^:]*):(.*)$/.exec(line)!);
  if (isVersion2()) return join(ROOT, parts.find(([, names]) => names === '')![2]!);
  return join(ROOT, controller, parts.find(([, names]) => names!.split(',').includes(controller))![2]!);
}

/** The directories with the control groups of the sandboxes of an installation, one of which has this monitor. */
export function groupDirectoriesOf(monitor: number): string[] {
  return [...new Set(CONTROLLERS.map((controller) => dirname(groupOf(monitor, controller))))];
}

export function groupsIn(directories: readonly string[]): number {
  const names = directories.map((directory) => readdirSync(directory, { withFileTypes: true }));
  return names.flat().filter((entry) => entry.isDirectory()).length;
}

/**
 * The bytes that a virtual machine takes beside the memory of its sandbox: its monitor, its supervisor, and the kernel
 * for both, such as page tables. The whole control group is counted, and the resident part of the sandbox's memory
 * subtracted, which is one mapping of the monitor. Cached files are not in it: the kernel can drop them, and sandboxes
 * share those of programs and images.
 */
export function memoryBesideSandbox(monitor: number, memoryMib: number): number {
  const group = groupOf(monitor, 'memory');
  const [current, prefix] = isVersion2() ? ['memory.current', ''] : ['memory.usage_in_bytes', 'total_'];
  const stat = readFileSync(join(group, 'memory.stat'), 'utf8');
  const cached = [...stat.matchAll(new RegExp(`^${prefix}(?:in)?active_file (\\d+)$`, 'gm'))];
  const all = Number(readFileSync(join(group, current), 'utf8'));
  const files = cached.reduce((sum, [, bytes]) => sum + Number(bytes), 0);
  return all - files - residentOf(monitor, memoryMib * KIB) * KIB;
}

/** The resident KiB of the mappings of this size. */
function residentOf(pid: number, sizeKib: number): number {
  const text = readFileSync(`/proc/${pid}/smaps`, 'utf8');
  const found = [...text.matchAll(/^Size: +(\d+) kB\n(?:.*\n)*?Rss: +(\d+) kB$/gm)];
  const own = found.filter(([, size]) => Number(size) === sizeKib);
  if (own.length === 0)
    throw new Error(`the monitor has no mapping of ${sizeKib} KiB: its memory is elsewhere`);
  return own.reduce((sum, [, , resident]) => sum + Number(resident), 0);
}

function isVersion2(): boolean {
  return existsSync(join(ROOT, 'cgroup.controllers'));
}
