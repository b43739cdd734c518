import type { EventActor } from '../audit/events/schema.js';
import type { Limits } from '../quotas/limits.js';
import { effectiveDuration } from '../quotas/reserve.js';
import type { NewRun } from '../runs/queries.js';
import type { RunSpec } from '../runtimes/runtime.js';

/** A run that is admitted and has not begun: what it needs, and who asked for it. */
export interface NextRun extends Omit<NewRun, 'org_id' | 'id' | 'sandbox_id'> {
  actor: EventActor;
}

export function nextRunOf(spec: RunSpec, limits: Limits, actor: EventActor): NextRun {
  return {
    vcpus: spec.vcpus,
    memory_mib: spec.memoryMib,
    disk_mib: spec.diskMib ?? 0,
    max_duration_secs: effectiveDuration(limits, spec.maxDurationSecs),
    idle_timeout_secs: spec.idleTimeoutSecs,
    actor,
  };
}
