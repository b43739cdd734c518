import { availableParallelism, totalmem } from 'node:os';
import type { Capacity } from './runtime.js';

/** Most sandboxes are idle. The others share the CPUs by the weights of their vCPUs; memory cannot be shared so. */
export const CPU_OVERCOMMIT = 8;

export function machineCapacity(): Capacity {
  return {
    vcpus: availableParallelism() * CPU_OVERCOMMIT,
    memoryMib: Math.floor(totalmem() / 1024 / 1024),
    diskMib: null,
  };
}

export function capacityText({ vcpus, memoryMib, diskMib }: Capacity): string {
  const disk = diskMib === null ? [] : [`${sizeText(diskMib)} of disk`];
  return [`${vcpus} vCPU`, sizeText(memoryMib), ...disk].join(', ');
}

function sizeText(mib: number): string {
  return mib < 1024 ? `${mib} MiB` : `${Math.floor(mib / 1024)} GiB`;
}
