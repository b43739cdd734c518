import { Int32, Nullable } from '../../http/schema.js';
import { field, group } from '../field.js';
import { refuse } from '../refuse.js';

const vcpus = field({
  schema: Int32({
    default: 1,
    description:
      'The number of virtual CPUs. 0: it shares the CPU, with a small weight and ceiling, and uses no vCPU-seconds.',
  }),
  check(value, { field: at }, { name, bounds }) {
    if (value < 1 && bounds.sharedCpuMillis === 0)
      refuse(at, 'a sandbox needs at least 1 vCPU; the operator may allow 0 with --shared-cpu-millis');
    if (value > bounds.vcpus)
      refuse(at, `the ${name} runtime has ${bounds.vcpus} vCPUs for a sandbox at most`);
  },
  run: (value) => ({ vcpus: value }),
});

const memory = field({
  schema: Int32({ default: 512, description: 'The memory of the guest in MiB.' }),
  check(value, { field: at }, { name, bounds }) {
    if (value < bounds.smallestMemoryMib || value > bounds.memoryMib) {
      const range = `${bounds.smallestMemoryMib} to ${bounds.memoryMib}`;
      refuse(at, `the ${name} runtime takes sandboxes of ${range} MiB of memory`);
    }
  },
  run: (value) => ({ memoryMib: value }),
});

const disk = field({
  schema: Nullable(Int32({ description: 'The size of the writable disk in MiB. Null: no limit.' })),
  default: null,
  check(value, { field: at }, { name, bounds }) {
    if (value === 0) refuse(at, 'a disk has at least 1 MiB');
    if (value !== null && bounds.diskMib !== undefined && value > bounds.diskMib)
      refuse(at, `the ${name} runtime makes disks of at most ${bounds.diskMib} MiB`);
  },
  requires: (value) => [
    value !== null && {
      capability: 'disk_size',
      what: 'limit the size of the disk',
      remedy:
        'leave resources.disk_size_mib out, or let the operator run "sandkeep doctor", which shows how it can',
    },
  ],
  run: (value) => ({ diskMib: value }),
});

export const resources = group({
  request: { title: 'CloudSandboxResources', description: 'The CPU, memory and disk of a sandbox.' },
  restricts: true,
  fields: { vcpus, memory_mib: memory, disk_size_mib: disk },
});
