import type { Activity } from '../../engine/runtime.js';

/** Waiting servers use some CPU time, so less than this share of one CPU counts as idle. */
const IDLE_CPU_SHARE = 0.005;
/** Ten observations per timeout, at most one a second. */
const LOOKS_PER_TIMEOUT = 10;
const SHORTEST_LOOK_MS = 1_000;

interface Clock {
  lookedAt: number;
  cpuMicros: number;
  activeAt: number;
  measuredAt: number | undefined;
  idleMs: number;
}

/**
 * How long runs have been idle, in milliseconds of a monotonic clock. In memory: after a restart each run starts at
 * zero, as nobody observed it.
 */
export class IdleClocks {
  private clocks = new Map<string, Clock>();

  /** The runs that are due for an observation. Forgets runs that are not in `running`. */
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

  /** `touchedAt`: the latest activity of a caller. */
  observe(runId: string, { cpuMicros, measuredAt }: Activity, now: number, touchedAt = 0): number {
    const before = this.clocks.get(runId);
    // An engine that measures more rarely gives the same figure again, which says nothing of the time since.
    if (before !== undefined && measuredAt !== undefined && measuredAt === before.measuredAt) {
      this.clocks.set(runId, { ...before, lookedAt: now });
      return Math.min(before.idleMs, now - touchedAt);
    }
    const elapsed =
      measuredAt === undefined ? now - (before?.lookedAt ?? now) : measuredAt - (before?.measuredAt ?? 0);
    const busy =
      before === undefined ||
      cpuMicros < before.cpuMicros ||
      cpuMicros - before.cpuMicros > elapsed * 1_000 * IDLE_CPU_SHARE;
    const activeAt = busy ? now : Math.max(before.activeAt, touchedAt);
    const idleMs = now - activeAt;
    this.clocks.set(runId, { lookedAt: now, cpuMicros, activeAt, measuredAt, idleMs });
    return idleMs;
  }

  keepAwake(runId: string, now: number): void {
    const clock = this.clocks.get(runId);
    if (clock) Object.assign(clock, { activeAt: now, idleMs: 0 });
  }
}
