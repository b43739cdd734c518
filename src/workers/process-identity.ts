import { readFileSync, readlinkSync } from 'node:fs';
import { hostname } from 'node:os';
import { newId } from '../lib/uuid.js';

/**
 * A unique name of a lease holder: machine boot, process-id namespace, process id and start time (proc(5)). Processes
 * of the same machine can tell that the holder has ended, so its lease need not expire. Without /proc they cannot.
 */
export function makeHolderName(): string {
  const place = placeOf();
  const started = startTimeOf(process.pid);
  return [newId(), ...(place && started ? [place, process.pid, started] : [])].join('/');
}

export function hasEnded(holder: string): boolean {
  const match = /^[0-9a-f-]{36}\/(.+)\/(\d+)\/(\d+)$/.exec(holder);
  if (!match || match[1] !== placeOf()) return false;
  return startTimeOf(Number(match[2])) !== match[3];
}

function placeOf(): string | undefined {
  try {
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    return `${boot}/${readlinkSync('/proc/self/ns/pid')}`;
  } catch {
    return undefined;
  }
}

/** The machine and its network namespace: processes of the same place reach each other at loopback addresses. */
export function networkPlace(): string {
  try {
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    return `${boot}/${readlinkSync('/proc/self/ns/net')}`;
  } catch {
    return hostname();
  }
}

/** In clock ticks since boot; undefined when the process has ended. */
function startTimeOf(pid: number): string | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The process name in parentheses may have spaces, so fields count from its end.
    const [state, ...rest] = text.slice(text.lastIndexOf(')') + 2).split(' ');
    return state === 'Z' || state === 'X' ? undefined : rest[18];
  } catch {
    return undefined;
  }
}
