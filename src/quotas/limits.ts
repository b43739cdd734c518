/** The limits of an organization. Null: unlimited. */
export const LIMITS = [
  'max_sandboxes',
  'max_concurrent_ephemeral_running',
  'max_concurrent_persistent_running',
  'max_vcpus_per_sandbox',
  'max_memory_mib_per_sandbox',
  'max_disk_size_mib_per_sandbox',
  'max_uptime_minutes_per_sandbox',
  'max_total_storage_gib',
  'max_published_ports',
  'max_snapshots',
  'max_snapshot_gib',
  'included_vcpu_hours',
  'included_memory_gib_hours',
  'included_disk_gib_hours',
  'included_storage_gib',
] as const;
export type Limit = (typeof LIMITS)[number];

export const SWITCHES = ['hard_cap', 'is_suspended'] as const;
export type Switch = (typeof SWITCHES)[number];

export type Limits = Record<Limit, number | null> & Record<Switch, boolean>;

export interface UsedHours {
  vcpu_hours_used: number;
  memory_gib_hours_used: number;
  disk_gib_hours_used: number;
}

/** The first included hours that are used up under `hard_cap`. */
export function exhaustedHours(
  limits: Limits,
  used: UsedHours,
): { quota: Limit; limit: number; used: number } | undefined {
  if (!limits.hard_cap) return undefined;
  const allowances = [
    { quota: 'included_vcpu_hours', used: used.vcpu_hours_used },
    { quota: 'included_memory_gib_hours', used: used.memory_gib_hours_used },
    { quota: 'included_disk_gib_hours', used: used.disk_gib_hours_used },
  ] as const;
  for (const allowance of allowances) {
    const limit = limits[allowance.quota];
    if (limit !== null && allowance.used >= limit) return { ...allowance, limit };
  }
  return undefined;
}

/** If false, the usage need not be added up. */
export function canExhaustHours({ hard_cap, ...limits }: Limits): boolean {
  const { included_vcpu_hours, included_memory_gib_hours, included_disk_gib_hours } = limits;
  const allowances = [included_vcpu_hours, included_memory_gib_hours, included_disk_gib_hours];
  return hard_cap && allowances.some((allowance) => allowance !== null);
}

/** The limit for the sum of all caps, in GiB. The included storage counts under `hard_cap`. */
export function storageLimit({
  hard_cap,
  max_total_storage_gib,
  included_storage_gib,
}: Limits): number | null {
  const limits = [max_total_storage_gib, hard_cap ? included_storage_gib : null].filter(
    (limit) => limit !== null,
  );
  return limits.length === 0 ? null : Math.min(...limits);
}
