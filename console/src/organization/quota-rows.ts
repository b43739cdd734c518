import type { QuotaUsage } from '../lib/api-types';

interface QuotaRow {
  title: string;
  used: number;
  /** Null or undefined: without a limit. */
  limit: number | null | undefined;
  words: (amount: number) => string;
}

const number = new Intl.NumberFormat('en', { maximumFractionDigits: 2 });

export const words = (unit: string) => (amount: number) =>
  `${number.format(amount)}${unit === '' ? '' : ` ${unit}`}`;

/** Limits of all sandboxes together, with their use. */
export function quotaRows(quota: QuotaUsage): readonly QuotaRow[] {
  const row = (title: string, used: number, limit: number | null | undefined, unit = '') => ({
    title,
    used,
    limit,
    words: words(unit),
  });
  return [
    row('Sandboxes', quota.total_sandboxes, quota.max_sandboxes),
    row(
      'Persistent sandboxes at once',
      quota.concurrent_persistent_running,
      quota.max_concurrent_persistent_running,
    ),
    row(
      'Ephemeral sandboxes at once',
      quota.concurrent_ephemeral_running,
      quota.max_concurrent_ephemeral_running,
    ),
    row('Published ports', quota.published_ports, quota.max_published_ports),
    row('Snapshots', quota.snapshots, quota.max_snapshots),
    row('Data of snapshots', quota.snapshot_gib_used, quota.max_snapshot_gib, 'GiB'),
    row('vCPU-hours of this month', quota.vcpu_hours_used, quota.included_vcpu_hours, 'h'),
    row('Memory of this month', quota.memory_gib_hours_used, quota.included_memory_gib_hours, 'GiB h'),
    row('Disk of this month', quota.disk_gib_hours_used, quota.included_disk_gib_hours, 'GiB h'),
  ];
}
