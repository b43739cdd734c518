import type { UseSampler } from '../engine/use/use-sampler.js';
import type { Total } from '../engine/use/use-totals.js';
import { gauge, total, type Sample } from './samples.js';

const NONE: Total = {
  sampled: 0,
  memoryBytes: 0,
  hostMemoryBytes: 0,
  processes: 0,
  cpuMicros: 0,
  diskReadBytes: 0,
  diskWrittenBytes: 0,
  receivedBytes: 0,
  sentBytes: 0,
};

/** Sums over the sandboxes of the engine of this process. A sandbox is no label: callers choose how many there are. */
export function measureUse(use: UseSampler, byOrg: boolean): Sample[] {
  const totals = use.totals.byOrg();
  if (byOrg) return [...totals].flatMap(([org, sums]) => samplesOf(sums, { org }));
  return samplesOf([...totals.values()].reduce(add, NONE), {});
}

function add(one: Total, other: Total): Total {
  const keys = Object.keys(NONE) as (keyof Total)[];
  return Object.fromEntries(keys.map((key) => [key, one[key] + other[key]])) as unknown as Total;
}

function samplesOf(sums: Total, labels: Record<string, string>): Sample[] {
  const name = (end: string) => `sandkeep_sandbox_use_${end}`;
  const disk = 'Bytes that sandboxes read from disks and wrote to them, as far as the engine counts them.';
  const network = 'Bytes that sandboxes received and sent.';
  const bytes = (end: string, help: string, value: number, direction: string) =>
    total(name(end), help, value, { direction, ...labels });
  return [
    gauge(
      name('sampled'),
      'Running sandboxes of this process with a sample of their use.',
      sums.sampled,
      labels,
    ),
    total(name('cpu_seconds_total'), 'Processor time of sandboxes.', sums.cpuMicros / 1_000_000, labels),
    gauge(name('memory_bytes'), 'Memory in use by them at their latest samples.', sums.memoryBytes, labels),
    gauge(
      name('host_memory_bytes'),
      'Memory of the machine that virtual machines take at their latest samples, with their monitors.',
      sums.hostMemoryBytes,
      labels,
    ),
    gauge(name('processes'), 'Processes and threads in them.', sums.processes, labels),
    bytes('disk_bytes_total', disk, sums.diskReadBytes, 'read'),
    bytes('disk_bytes_total', disk, sums.diskWrittenBytes, 'written'),
    bytes('network_bytes_total', network, sums.receivedBytes, 'received'),
    bytes('network_bytes_total', network, sums.sentBytes, 'sent'),
  ];
}
