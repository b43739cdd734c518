import type { Activity } from '../runtime.js';

/** A running sandbox whose use may be sampled. */
export interface Subject {
  orgId: string;
  /** The slug of its organization. */
  org: string;
  sandboxId: string;
  runId: string;
  /** In milliseconds since 1970. */
  startedAt: number;
  /** The least time between two samples in milliseconds. */
  intervalMs: number;
}

/** A sample. Null: not measured. */
export interface Use {
  /** In milliseconds since 1970. */
  at: number;
  /** In percent of one virtual CPU, since the sample before. */
  cpuPercent: number;
  memoryBytes: number | null;
  hostMemoryBytes: number | null;
  processes: number | null;
  diskBytes: number | null;
  diskReadBytes: number | null;
  diskWrittenBytes: number | null;
  receivedBytes: number | null;
  sentBytes: number | null;
  /** The size that the engine gave its disk. The points of the past do not have it. */
  diskLimitBytes?: number | undefined;
}

/**
 * Samples are a second apart. An engine may measure at moments of its own, in whole seconds. The first sample of a run
 * can then be as old as the run. Without this bound the work of the start counts as thousands of percent.
 */
const SHORTEST_MS = 500;

/** `cpuMicros`, `at`: of the sample before; of a run without one, zero at its start. */
export function useOf(
  activity: Activity,
  before: { cpuMicros: number; at: number },
  at: number,
  diskBytes: number | null,
): Use {
  // A clock that was set back, or a total that began again, gives no negative share.
  const micros = Math.max(0, activity.cpuMicros - before.cpuMicros);
  const elapsedMs = Math.max(SHORTEST_MS, at - before.at);
  return {
    at,
    cpuPercent: Math.round((micros / (elapsedMs * 1_000)) * 10_000) / 100,
    memoryBytes: activity.memoryBytes ?? null,
    hostMemoryBytes: activity.hostMemoryBytes ?? null,
    processes: activity.processes ?? null,
    diskBytes: activity.diskBytes ?? diskBytes,
    diskReadBytes: activity.diskReadBytes ?? null,
    diskWrittenBytes: activity.diskWrittenBytes ?? null,
    receivedBytes: activity.receivedBytes ?? null,
    sentBytes: activity.sentBytes ?? null,
    diskLimitBytes: activity.diskLimitBytes,
  };
}
