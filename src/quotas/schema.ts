import { Type, type Static } from 'typebox';
import { Int32, Int64, Named, Nullable } from '../http/schema.js';

const limit = (description: string) =>
  Type.Optional(Nullable(Int32({ description: `${description} Null means unlimited.` })));
const hours = (description: string) => Type.Number({ format: 'double', description });

export const QuotaUsage = Named(
  'QuotaUsage',
  {
    hard_cap: Type.Boolean({
      description:
        'Whether the included amounts are limits. If true, sandboxes stop when the hours are used up, and volumes cannot grow beyond the included storage.',
    }),
    vcpu_hours_used: hours('vCPU-hours used in this UTC month.'),
    memory_gib_hours_used: hours('GiB-hours of memory used in this UTC month.'),
    disk_gib_hours_used: hours(
      'GiB-hours of disks with a size, used in this UTC month while their sandboxes ran.',
    ),
    included_vcpu_hours: limit('The vCPU-hours included in a UTC month.'),
    included_memory_gib_hours: limit('The GiB-hours of memory included in a UTC month.'),
    included_disk_gib_hours: limit('The GiB-hours of disk included in a UTC month.'),
    included_storage_gib: limit('The included storage of volumes, in GiB.'),
    pool_exhausted: Type.Boolean({
      description:
        'Whether the included hours are used up under `hard_cap`. Running sandboxes are then stopped and starts are refused.',
    }),
    is_suspended: Type.Boolean({
      description: 'Whether the operator has suspended the organization. Starts are then refused.',
    }),
    total_sandboxes: Int64({ description: 'The number of sandboxes that exist, in any status.' }),
    max_sandboxes: limit('The most sandboxes that may exist.'),
    concurrent_ephemeral_running: Int64({
      description: 'The number of ephemeral sandboxes that are starting, running or being paused.',
    }),
    max_concurrent_ephemeral_running: limit(
      'The most ephemeral sandboxes that may be starting, running or being paused.',
    ),
    concurrent_persistent_running: Int64({
      description: 'The number of persistent sandboxes that are starting, running or being paused.',
    }),
    max_concurrent_persistent_running: limit(
      'The most persistent sandboxes that may be starting, running or being paused.',
    ),
    max_vcpus_per_sandbox: limit('The most vCPUs of one sandbox.'),
    max_memory_mib_per_sandbox: limit('The most memory of one sandbox, in MiB.'),
    max_disk_size_mib_per_sandbox: limit('The largest disk of one sandbox, in MiB.'),
    max_uptime_minutes_per_sandbox: limit('The longest run of one sandbox, in minutes.'),
    max_total_storage_gib: limit('The most that the caps of all volumes may add up to, in GiB.'),
    published_ports: Int64({
      description: 'An extension: the ports of the host on which sandboxes publish theirs.',
    }),
    max_published_ports: limit('An extension: the most ports of the host for published ports.'),
    snapshots: Int64({
      description: 'An extension: the snapshots that exist, with those that are being made or deleted.',
    }),
    snapshot_gib_used: Type.Number({
      format: 'double',
      description: 'An extension: the sum of the sizes of all snapshots, in GiB.',
    }),
    max_snapshots: limit('An extension: the most snapshots that may exist.'),
    max_snapshot_gib: limit('An extension: the most that the sizes of all snapshots may add up to, in GiB.'),
  },
  'The quotas of the organization and their use.',
);
export type QuotaUsage = Static<typeof QuotaUsage>;
