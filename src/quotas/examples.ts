import type { Examples } from '../http/examples.js';

export const quotaExamples: Examples = {
  get_quotas: {
    answer: {
      hard_cap: true,
      vcpu_hours_used: 412.5,
      memory_gib_hours_used: 206.25,
      disk_gib_hours_used: 0,
      included_vcpu_hours: 1000,
      included_memory_gib_hours: 2000,
      included_disk_gib_hours: null,
      included_storage_gib: 100,
      pool_exhausted: false,
      is_suspended: false,
      total_sandboxes: 12,
      max_sandboxes: 50,
      concurrent_ephemeral_running: 3,
      max_concurrent_ephemeral_running: 20,
      concurrent_persistent_running: 2,
      max_concurrent_persistent_running: 10,
      max_vcpus_per_sandbox: 8,
      max_memory_mib_per_sandbox: 16384,
      max_disk_size_mib_per_sandbox: null,
      max_uptime_minutes_per_sandbox: 1440,
      max_total_storage_gib: 200,
      published_ports: 4,
      max_published_ports: 256,
    },
  },
};
