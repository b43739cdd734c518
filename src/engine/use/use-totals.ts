import type { Activity } from '../runtime.js';
import type { Subject, Use } from './use.js';

const COUNTED = ['cpuMicros', 'diskReadBytes', 'diskWrittenBytes', 'receivedBytes', 'sentBytes'] as const;
type Counted = (typeof COUNTED)[number];

export interface Total extends Record<Counted, number> {
  /** Running sandboxes with a sample. */
  sampled: number;
  memoryBytes: number;
  hostMemoryBytes: number;
  processes: number;
}

/** The sums over all sandboxes of an organization since this process began. The parts of ended runs stay in them. */
export class UseTotals {
  private readonly orgs = new Map<string, Record<Counted, number>>();
  private readonly latest = new Map<string, { org: string; activity: Activity; use: Use }>();

  constructor(private readonly since: number) {}

  add({ sandboxId, org, startedAt }: Subject, activity: Activity, use: Use): void {
    const before = this.latest.get(sandboxId)?.activity;
    const sums = this.orgs.get(org) ?? nothing();
    // An earlier process has counted the beginning of a run that is older than this one.
    const isNew = before === undefined && startedAt < this.since;
    for (const field of isNew ? [] : COUNTED)
      sums[field] += Math.max(0, (activity[field] ?? 0) - (before?.[field] ?? 0));
    this.orgs.set(org, sums);
    this.latest.set(sandboxId, { org, activity, use });
  }

  /** To be called when the run of the sandbox has ended. */
  leave(sandboxId: string): void {
    this.latest.delete(sandboxId);
  }

  /** To be called when another process takes over the sampling. */
  leaveAll(): void {
    this.latest.clear();
  }

  byOrg(): Map<string, Total> {
    const totals = new Map<string, Total>(
      [...this.orgs].map(([org, sums]) => [
        org,
        { ...sums, sampled: 0, memoryBytes: 0, hostMemoryBytes: 0, processes: 0 },
      ]),
    );
    for (const { org, use } of this.latest.values()) {
      const total = totals.get(org)!;
      total.sampled += 1;
      total.memoryBytes += use.memoryBytes ?? 0;
      total.hostMemoryBytes += use.hostMemoryBytes ?? 0;
      total.processes += use.processes ?? 0;
    }
    return totals;
  }
}

function nothing(): Record<Counted, number> {
  return { cpuMicros: 0, diskReadBytes: 0, diskWrittenBytes: 0, receivedBytes: 0, sentBytes: 0 };
}
