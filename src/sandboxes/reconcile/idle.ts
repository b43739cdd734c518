import type { Activity } from '../../runtimes/runtime.js';

/** Using less than this share of one CPU between two looks is no activity: servers that wait tick a little. */
const IDLE_CPU_SHARE = 0.005;
/** How often a sandbox is looked at: ten times in its timeout, but not more often than that, in milliseconds. */
const LOOKS_PER_TIMEOUT = 10;
const SHORTEST_LOOK_MS = 1_000;

interface Clock {
  lookedAt: number;
  cpuMicros: number;
  activeAt: number;
}

/**
 * How long runs have been idle. Kept in memory: after a restart of the worker every run begins anew, so that none is
 * ended for a time in which nobody looked. All times are milliseconds of one monotonic clock.
 */
export class IdleClocks {
  private clocks = new Map<string, Clock>();

  /** Which of these running sandboxes it is time to look at. Forgets all runs that are not among them. */
  due<T extends { runId: string; timeoutSecs: number }>(running: readonly T[], now: number): T[] {
    this.clocks = new Map(
      running.flatMap(({ runId }) => {
        const clock = this.clocks.get(runId);
        return clock ? [[runId, clock]] : [];
      }),
    );
    return running.filter(({ runId, timeoutSecs }) => {
      const clock = this.clocks.get(runId);
      const pause = Math.max((timeoutSecs * 1_000) / LOOKS_PER_TIMEOUT, SHORTEST_LOOK_MS);
      return clock === undefined || now - clock.lookedAt >= pause;
    });
  }

  /** Notes what a run has done until now; returns for how long it has been idle. */
  observe(runId: string, { cpuMicros }: Activity, now: number): number {
    const before = this.clocks.get(runId);
    const busy =
      before === undefined ||
      cpuMicros < before.cpuMicros ||
      cpuMicros - before.cpuMicros > (now - before.lookedAt) * 1_000 * IDLE_CPU_SHARE;
    const activeAt = busy ? now : before.activeAt;
    this.clocks.set(runId, { lookedAt: now, cpuMicros, activeAt });
    return now - activeAt;
  }
}
