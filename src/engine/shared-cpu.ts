/**
 * A sandbox with `vcpus` 0 shares the CPU: it takes no vCPU of the capacity, and has a ceiling and weight of this much
 * of one.
 */
export const SHARED_CPU_MILLIS = { default: 250, most: 1_000 };

/** In thousandths of a CPU: the ceiling of the sandbox and, against others, its weight. */
export function cpuMillis(vcpus: number, sharedCpuMillis: number): number {
  return vcpus === 0 ? sharedCpuMillis : vcpus * 1_000;
}
