import { instantFromMicros, shortInstant } from '../../lib/instant.js';
import { SAMPLING, type UseSampler } from '../../engine/use/use-sampler.js';
import type { Use } from '../../engine/use/use.js';
import type { MeasuredSandbox } from './queries.js';
import type { MetricsSample, SandboxMetrics } from './schema.js';

const MIB = 1024 ** 2;
const ONE_CPU_PERCENT = 100;

export async function showMetrics(use: UseSampler, sandbox: MeasuredSandbox): Promise<SandboxMetrics> {
  const { id, limits, subject } = sandbox;
  const sample = subject ? await use.sample(subject) : undefined;
  return {
    sandbox_id: id,
    sample_interval_ms: sampleIntervalMs(sandbox),
    unavailable_reason: sample ? null : reasonOf(sandbox),
    cpu_limit_percent: limits && limits.vcpus * ONE_CPU_PERCENT,
    memory_limit_bytes: limits && limits.memoryMib * MIB,
    disk_limit_bytes: limits?.diskMib == null ? (sample?.diskLimitBytes ?? null) : limits.diskMib * MIB,
    current: sample ? showSample(sample) : null,
    history_interval_ms: use.pointMs,
    history: use.history(id).map(showSample),
  };
}

export function sampleIntervalMs({ intervalMs }: MeasuredSandbox): number | null {
  return intervalMs === null ? null : Math.max(intervalMs, SAMPLING.shortestMs);
}

function reasonOf({ intervalMs, isRunning }: MeasuredSandbox): SandboxMetrics['unavailable_reason'] {
  if (intervalMs === null) return 'disabled';
  return isRunning ? 'not_measured' : 'not_running';
}

export function showSample(use: Use): MetricsSample {
  return {
    timestamp: shortInstant(instantFromMicros(BigInt(Math.round(use.at * 1_000)))),
    cpu_percent: use.cpuPercent,
    memory_bytes: use.memoryBytes,
    host_memory_bytes: use.hostMemoryBytes,
    disk_bytes: use.diskBytes,
    disk_read_bytes: use.diskReadBytes,
    disk_write_bytes: use.diskWrittenBytes,
    net_rx_bytes: use.receivedBytes,
    net_tx_bytes: use.sentBytes,
    processes: use.processes,
  };
}
