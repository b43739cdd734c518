import { readFileSync, readlinkSync } from 'node:fs';
import { v7 as uuidv7 } from 'uuid';

/**
 * A name for the holder of a lease that no other has, here or elsewhere, now or later. It says which process it is in, by
 * machine boot, process-id namespace, process id and start time (proc(5)): so any process of the same machine can tell
 * whether it still lives, and the lease of a dead one need not run out first. Without /proc nobody can tell.
 */
export function makeHolder(): string {
  const place = placeOf();
  const started = startTimeOf(process.pid);
  return [uuidv7(), ...(place && started ? [place, process.pid, started] : [])].join('/');
}

/** True only when the process is known to have ended. */
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

/** In clock ticks since boot; undefined for a process that is gone or dead and not yet reaped. */
function startTimeOf(pid: number): string | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name in parentheses may hold anything, so fields are counted from its end.
    const [state, ...rest] = text.slice(text.lastIndexOf(')') + 2).split(' ');
    return state === 'Z' || state === 'X' ? undefined : rest[18];
  } catch {
    return undefined;
  }
}
