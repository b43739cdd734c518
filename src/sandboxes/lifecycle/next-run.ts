import type { EventActor } from '../../audit/events/schema.js';
import type { Instant } from '../../lib/instant.js';
import type { Limits } from '../../quotas/limits.js';
import { effectiveDuration } from '../../quotas/size-limits.js';
import type { NewRun, RunCommand } from '../../runs/queries.js';
import type { RunSpec } from '../../spec/run-spec.js';

/** Why a run was requested. */
export interface RunCause {
  reason: 'requested' | 'preview_request' | 'session_request';
  /** The preview whose request started the sandbox. */
  preview_id?: string;
}

/** An admitted run that has no row yet: its needs and its actor. */
export interface NextRun extends Omit<NewRun, 'org_id' | 'id' | 'sandbox_id' | 'resumes'> {
  actor: EventActor;
  /** Absent: a caller asked for it. */
  cause?: RunCause;
}

export function nextRunOf(
  spec: RunSpec,
  limits: Limits,
  actor: EventActor,
  wantedUntil: Instant | null = null,
): NextRun {
  return {
    vcpus: spec.vcpus,
    memory_mib: spec.memoryMib,
    disk_mib: spec.diskMib ?? 0,
    max_duration_secs: effectiveDuration(limits, spec.maxDurationSecs),
    idle_timeout_secs: spec.idleTimeoutSecs,
    command: commandOf(spec),
    ...(wantedUntil === null ? {} : { wanted_until: wantedUntil }),
    actor,
  };
}

function commandOf({ cmd, endsWithCommand }: RunSpec): RunCommand | null {
  if (cmd === null || cmd.length === 0) return null;
  return endsWithCommand ? 'ends_run' : 'stays';
}
