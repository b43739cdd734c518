import type { RunSpec } from '../spec/run-spec.js';
import type { Limits } from './limits.js';
import { refuse } from './refuse.js';

export function checkSize(
  limits: Limits,
  { vcpus, memoryMib, diskMib }: Pick<RunSpec, 'vcpus' | 'memoryMib' | 'diskMib'>,
): void {
  const sizes = [
    ['max_vcpus_per_sandbox', vcpus],
    ['max_memory_mib_per_sandbox', memoryMib],
    ['max_disk_size_mib_per_sandbox', diskMib],
  ] as const;
  for (const [quota, size] of sizes) {
    const limit = limits[quota];
    if (limit === null || (size !== null && size <= limit)) continue;
    if (size === null) refuse(quota, limit, null, `its disk has no size, and ${limit} MiB are allowed`);
    refuse(quota, limit, size, `the sandbox has ${size}, and ${limit} are allowed`);
  }
}

/** Refuses an unlimited disk if there is a limit that the runtime cannot enforce. */
export function refuseUnlimitedDisk(limit: number, runtime: string): never {
  const why = `the ${runtime} runtime cannot limit the size of a disk`;
  refuse('max_disk_size_mib_per_sandbox', limit, null, limit === 0 ? 'no disk is allowed' : why);
}

/** The maximum duration of a run in seconds. Null: unlimited. */
export function effectiveDuration(
  { max_uptime_minutes_per_sandbox: minutes }: Limits,
  wantedSecs: number | null,
): number | null {
  if (minutes === null) return wantedSecs;
  return wantedSecs === null ? minutes * 60 : Math.min(minutes * 60, wantedSecs);
}
