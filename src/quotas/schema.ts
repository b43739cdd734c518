import { Type, type Static } from 'typebox';
import { Int32, Int64, Named, Nullable } from '../http/schema.js';

const limit = (description: string) =>
  Type.Optional(Nullable(Int32({ description: `${description} Null is unlimited.` })));
const hours = (description: string) => Type.Number({ format: 'double', description });

export const QuotaUsage = Named(
  'QuotaUsage',
  {
    hard_cap: Type.Boolean({
      description:
        'What is included is a wall: when the hours are used up nothing runs on, and storage ends there.',
    }),
    vcpu_hours_used: hours('vCPU-hours that ran in this UTC month.'),
    memory_gib_hours_used: hours('Memory GiB-hours that ran in this UTC month.'),
    disk_gib_hours_used: hours('GiB-hours of sized disks of what ran in this UTC month.'),
    included_vcpu_hours: limit('vCPU-hours a UTC month.'),
    included_memory_gib_hours: limit('Memory GiB-hours a UTC month.'),
    included_disk_gib_hours: limit('Disk GiB-hours a UTC month.'),
    included_storage_gib: limit('Storage, in GiB.'),
    pool_exhausted: Type.Boolean({
      description: 'The hours are used up and a wall: what runs is being stopped, and starts are refused.',
    }),
    is_suspended: Type.Boolean({ description: 'Starts are refused.' }),
    total_sandboxes: Int64({ description: 'Sandboxes that exist, whatever their status.' }),
    max_sandboxes: limit('Sandboxes that may exist.'),
    concurrent_ephemeral_running: Int64({ description: 'Ephemeral sandboxes that are starting or running.' }),
    max_concurrent_ephemeral_running: limit('Ephemeral sandboxes that may be starting or running.'),
    concurrent_persistent_running: Int64({
      description: 'Persistent sandboxes that are starting or running.',
    }),
    max_concurrent_persistent_running: limit('Persistent sandboxes that may be starting or running.'),
    max_vcpus_per_sandbox: limit('vCPUs of one sandbox.'),
    max_memory_mib_per_sandbox: limit('Memory of one sandbox, in MiB.'),
    max_disk_size_mib_per_sandbox: limit('Disk of one sandbox, in MiB.'),
    max_uptime_minutes_per_sandbox: limit('Minutes a run may take.'),
    max_total_storage_gib: limit('Caps of all volumes together, in GiB.'),
  },
  'What the organization may have, and what it has.',
);
export type QuotaUsage = Static<typeof QuotaUsage>;
