import type { SandboxDailyUsage } from '../lib/api-types';

type Quantities = Pick<SandboxDailyUsage, 'vcpu_seconds' | 'mem_mib_seconds' | 'disk_mib_seconds'>;

const HOUR = 3600;
const MIB_HOURS_PER_GIB_HOUR = HOUR * 1024;

/** The compute of sandboxes, in the units of prices. */
export const COMPUTE = {
  vcpu: { title: 'CPU', unit: 'vCPU-hours', of: (row: Quantities) => row.vcpu_seconds / HOUR },
  memory: {
    title: 'Memory',
    unit: 'GiB-hours',
    of: (row: Quantities) => row.mem_mib_seconds / MIB_HOURS_PER_GIB_HOUR,
  },
  disk: {
    title: 'Disk',
    unit: 'GiB-hours',
    of: (row: Quantities) => row.disk_mib_seconds / MIB_HOURS_PER_GIB_HOUR,
  },
} as const;
export type ComputeMetric = keyof typeof COMPUTE;

export const STORAGE = {
  title: 'Storage',
  unit: 'GiB-hours',
  of: ({ mib_seconds }: { mib_seconds: number }) => mib_seconds / MIB_HOURS_PER_GIB_HOUR,
} as const;

/** Only by label: the report by sandbox has no costs. The unit is the currency of the report. */
const COST = { title: 'Cost' } as const;

export const METRICS = { ...COMPUTE, storage: STORAGE, cost: COST } as const;
export type Metric = keyof typeof METRICS;

const number = new Intl.NumberFormat('en', { minimumFractionDigits: 3, maximumFractionDigits: 3 });
export const hours = (amount: number) => number.format(amount);
