import { readFileSync } from 'node:fs';
import type { ProcessIdentity, RunRecord } from './record.js';

/** `/proc/<pid>/stat` after the name of the program, which may have any characters. */
const FIRST_FIELD = 3;
const FIELD = { utime: 14, stime: 15, starttime: 22, rss: 24 };
/** The unit of the kernel for programs, on every processor. */
const TICKS_PER_SECOND = 100;
const PAGE_BYTES = 4_096;

export interface ProcessUse {
  cpuMicros: number;
  memoryBytes: number;
}

export interface Transfers {
  diskReadBytes: number;
  diskWrittenBytes: number;
}

let bootId: string | undefined;

/** The machine has another one at each start. */
function thisBoot(): string {
  bootId ??= readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  return bootId;
}

/** Whether the supervisor or the monitor of a run is still there. */
export function isAlive({ boot, supervisor, monitor }: RunRecord): boolean {
  if (boot !== thisBoot()) return false;
  return [supervisor, monitor].some((each) => each !== undefined && statOf(each) !== undefined);
}

export function isRunning(process: ProcessIdentity): boolean {
  return statOf(process) !== undefined;
}

/** Undefined: the process has ended. */
export function useOf(process: ProcessIdentity): ProcessUse | undefined {
  const stat = statOf(process);
  if (!stat) return undefined;
  const ticks = Number(stat(FIELD.utime)) + Number(stat(FIELD.stime));
  return {
    cpuMicros: (ticks * 1_000_000) / TICKS_PER_SECOND,
    memoryBytes: Number(stat(FIELD.rss)) * PAGE_BYTES,
  };
}

/** The sums over processes, of which each lives as long as its run. */
export function transfersOf(pids: readonly number[]): Transfers {
  const texts = pids.map(readTransfers);
  const sum = (name: string) =>
    texts.reduce(
      (total, text) => total + Number(new RegExp(`^${name}: (\\d+)$`, 'm').exec(text)?.[1] ?? 0),
      0,
    );
  return { diskReadBytes: sum('read_bytes'), diskWrittenBytes: sum('write_bytes') };
}

function readTransfers(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/io`, 'latin1');
  } catch {
    return '';
  }
}

/** The fields of a process by their numbers in proc(5). Undefined: it has ended, also where nobody has reaped it. */
function statOf({ pid, startTicks }: ProcessIdentity): ((field: number) => string) | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const field = (number: number) => fields[number - FIRST_FIELD] ?? '';
    if (field(FIELD.starttime) !== startTicks || /^[ZX]/.test(field(FIRST_FIELD))) return undefined;
    return field;
  } catch {
    return undefined;
  }
}
