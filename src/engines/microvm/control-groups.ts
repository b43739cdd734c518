import { createHash } from 'node:crypto';
import {
  accessSync,
  constants,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';

const ROOT = '/sys/fs/cgroup';
/**
 * All virtual machines of the machine share one weight of the CPU, as containers of the Docker runtime do. Emulated
 * ones have another: two installations would replace the weight of each other.
 */
const TOP = { hardware: 'sandkeep-microvm', emulated: 'sandkeep-microvm-emulated' };
/** A process or service of the machine has 1024, or 100 in version 2. */
const WEIGHT = { shares: 256, weight: 25 };
/** An emulated processor has many times the work. Beside a busy test it would starve. */
const EMULATED_WEIGHT = { shares: 16_384, weight: 1_600 };
const CONTROLLERS = ['cpu', 'memory', 'pids'] as const;
const PERIOD_MICROS = 100_000;
/** A monitor has a thread for each processor, and a pool of threads for its disks. File servers have five each. */
const PROCESSES = 192;
const MIB = 1024 * 1024;

export interface GroupLimits {
  cpuMillis: number;
  memoryMib: number;
}

/**
 * The control groups of virtual machines: one for each, with its supervisor and its monitor. They are outside the group
 * of the service, so that systemd leaves them when it stops the service.
 */
export class ControlGroups {
  private constructor(
    private readonly version: 1 | 2,
    /** With the groups of other installations, below each root. */
    private readonly top: string,
    /** The group of this installation, below each root. */
    private readonly name: string,
    private readonly weight: typeof WEIGHT,
  ) {}

  /** Whether this process may write them. Changes nothing. */
  static areWritable(): boolean {
    try {
      const directories = versionOfMachine() === 2 ? [''] : CONTROLLERS;
      for (const directory of directories) accessSync(join(ROOT, directory), constants.W_OK);
      return process.geteuid?.() === 0;
    } catch {
      return false;
    }
  }

  /** Undefined: this process may not write them. */
  static open(instanceId: string, { isEmulated }: { isEmulated: boolean }): ControlGroups | undefined {
    const top = isEmulated ? TOP.emulated : TOP.hardware;
    const groups = new ControlGroups(
      versionOfMachine(),
      top,
      join(top, nameOf(instanceId)),
      isEmulated ? EMULATED_WEIGHT : WEIGHT,
    );
    try {
      groups.prepare();
      return groups;
    } catch {
      // Without root, or where the file system is read-only.
      return undefined;
    }
  }

  /** Removes those of an installation of which no virtual machine runs. */
  static removeAll(instanceId: string): void {
    const roots = versionOfMachine() === 2 ? [ROOT] : CONTROLLERS.map((controller) => join(ROOT, controller));
    for (const root of roots)
      for (const top of Object.values(TOP)) {
        const own = join(root, top, nameOf(instanceId));
        for (const child of childrenOf(own)) removeEmpty(join(own, child));
        removeEmpty(own);
        removeEmpty(join(root, top));
      }
  }

  /** Makes the groups of a sandbox. Returns the files by which a process joins them. */
  make(sandboxId: string, { cpuMillis, memoryMib }: GroupLimits): string[] {
    const quota = String(Math.max(1_000, Math.round((cpuMillis * PERIOD_MICROS) / 1_000)));
    const bytes = String(memoryMib * MIB);
    const directories = this.directoriesOf(sandboxId);
    for (const directory of directories) mkdirSync(directory, { recursive: true });
    const write = (controller: (typeof CONTROLLERS)[number], file: string, value: string) =>
      writeFileSync(join(this.directoryOf(controller, sandboxId), file), value);
    write('pids', 'pids.max', String(PROCESSES));
    // Several of them on few processors share these by their own.
    const share = cpuMillis / 1_000;
    if (this.version === 2) {
      write('cpu', 'cpu.max', `${quota} ${PERIOD_MICROS}`);
      write('cpu', 'cpu.weight', String(Math.min(10_000, Math.max(1, Math.round(100 * share)))));
      write('memory', 'memory.max', bytes);
      this.tryWrite('memory', sandboxId, 'memory.swap.max', '0');
    } else {
      write('cpu', 'cpu.cfs_period_us', String(PERIOD_MICROS));
      write('cpu', 'cpu.cfs_quota_us', quota);
      write('cpu', 'cpu.shares', String(Math.max(2, Math.round(1_024 * share))));
      // With the swap. It is never below the limit of the memory, and the group may be that of an earlier run.
      this.tryWrite('memory', sandboxId, 'memory.memsw.limit_in_bytes', '-1');
      write('memory', 'memory.limit_in_bytes', bytes);
      this.tryWrite('memory', sandboxId, 'memory.memsw.limit_in_bytes', bytes);
    }
    return directories.map((directory) => join(directory, 'cgroup.procs'));
  }

  /** The kernel has killed the monitor because it used more memory than its limit. */
  ranOut(sandboxId: string): boolean {
    const file = this.version === 2 ? 'memory.events' : 'memory.oom_control';
    try {
      const text = readFileSync(join(this.directoryOf('memory', sandboxId), file), 'utf8');
      return Number(/^oom_kill (\d+)$/m.exec(text)?.[1] ?? 0) > 0;
    } catch {
      return false;
    }
  }

  /**
   * The memory of the processes of a sandbox and of the kernel for them. The cache of files that can be dropped is not
   * in it. Undefined: it has no group.
   */
  memoryOf(sandboxId: string): number | undefined {
    const [current, inactive] =
      this.version === 2
        ? ['memory.current', 'inactive_file']
        : ['memory.usage_in_bytes', 'total_inactive_file'];
    const read = (file: string) => readFileSync(join(this.directoryOf('memory', sandboxId), file), 'utf8');
    try {
      const cache = new RegExp(`^${inactive} (\\d+)$`, 'm').exec(read('memory.stat'))?.[1];
      return Math.max(0, Number(read(current)) - Number(cache ?? 0));
    } catch {
      return undefined;
    }
  }

  /** The supervisor of a sandbox and the programs that it has started. Empty: it has no group. */
  processesOf(sandboxId: string): number[] {
    try {
      const text = readFileSync(join(this.directoryOf('pids', sandboxId), 'cgroup.procs'), 'utf8');
      return text.split('\n').filter(Boolean).map(Number);
    } catch {
      return [];
    }
  }

  remove(sandboxId: string): void {
    for (const directory of this.directoriesOf(sandboxId)) removeEmpty(directory);
  }

  private prepare(): void {
    if (this.version === 2) {
      const all = CONTROLLERS.map((controller) => `+${controller}`).join(' ');
      for (const parent of ['', this.top, this.name]) {
        mkdirSync(join(ROOT, parent), { recursive: true });
        writeFileSync(join(ROOT, parent, 'cgroup.subtree_control'), all);
      }
      writeFileSync(join(ROOT, this.top, 'cpu.weight'), String(this.weight.weight));
      return;
    }
    for (const controller of CONTROLLERS) mkdirSync(join(ROOT, controller, this.name), { recursive: true });
    writeFileSync(join(ROOT, 'cpu', this.top, 'cpu.shares'), String(this.weight.shares));
  }

  private tryWrite(controller: (typeof CONTROLLERS)[number], id: string, file: string, value: string): void {
    try {
      writeFileSync(join(this.directoryOf(controller, id), file), value);
    } catch {
      // A kernel without an account of swap.
    }
  }

  private directoryOf(controller: (typeof CONTROLLERS)[number], sandboxId: string): string {
    return join(ROOT, this.version === 2 ? '' : controller, this.name, sandboxId);
  }

  private directoriesOf(sandboxId: string): string[] {
    return [...new Set(CONTROLLERS.map((controller) => this.directoryOf(controller, sandboxId)))];
  }
}

function nameOf(instanceId: string): string {
  return createHash('sha256').update(instanceId).digest('hex').slice(0, 16);
}

function childrenOf(directory: string): string[] {
  try {
    return readdirSync(directory, { withFileTypes: true }).flatMap((entry) =>
      entry.isDirectory() ? entry.name : [],
    );
  } catch {
    return [];
  }
}

function removeEmpty(directory: string): void {
  try {
    rmdirSync(directory);
  } catch {
    // There is none, or a process is about to leave it. The next start uses it again.
  }
}

function versionOfMachine(): 1 | 2 {
  return existsSync(join(ROOT, 'cgroup.controllers')) ? 2 : 1;
}
