import { readFileSync } from 'node:fs';

/**
 * The kernel counts these for the user or the machine, so one sandbox can take all. Above `least`, its memory ends
 * first.
 */
const SHARED = [
  { name: 'fs.inotify.max_user_instances', least: 1_048_576 },
  { name: 'kernel.pty.max', least: 1_048_576 },
] as const;

export function explainSharedLimits(
  read: (name: string) => string = readSysctl,
): { found: string; remedy: string } | undefined {
  const low = SHARED.filter(({ name, least }) => Number(read(name)) < least);
  if (low.length === 0) return undefined;
  const values = low.map(({ name }) => `${name} is ${read(name).trim()}`).join(', ');
  const wanted = low.map(({ name, least }) => `${name}=${least}`).join(' ');
  return { found: `one sandbox can take from all others: ${values}`, remedy: `sysctl -w ${wanted}` };
}

/** `Infinity`: the kernel has no such bound, or hides it in a namespace. */
export function readSysctl(name: string): string {
  try {
    return readFileSync(`/proc/sys/${name.replaceAll('.', '/')}`, 'utf8');
  } catch {
    return 'Infinity';
  }
}
