import { v7 as uuidv7 } from 'uuid';
import type { Sql } from '../db/pool.js';
import { recordEvent } from '../events/record.js';
import type { EventActor } from '../events/schema.js';
import type { Instant } from '../lib/instant.js';
import type { Limits } from '../quotas/limits.js';
import { effectiveDuration } from '../quotas/reserve.js';
import { insertRun } from '../runs/queries.js';
import type { RunSpec } from '../runtimes/runtime.js';
import type { SandboxRow } from './queries.js';

/** What a sandbox becomes whose run is admitted. */
export interface Admitted {
  status: 'starting';
  status_reason: 'scheduling';
  last_failure_message: null;
  run_id: string;
}

/**
 * Admits a run of a sandbox at rest, whose row the transaction holds: the run and the audit event are written together with
 * what is returned, which the caller writes; the reconciler takes it from there.
 */
export async function requestRun(
  sql: Sql,
  sandbox: Pick<SandboxRow, 'org_id' | 'id' | 'name' | 'status'> & { run_spec: RunSpec },
  limits: Limits,
  actor: EventActor,
  at: Instant,
): Promise<Admitted> {
  const { org_id: orgId, id, name, run_spec: spec, status } = sandbox;
  const runId = uuidv7();
  await insertRun(sql, {
    org_id: orgId,
    id: runId,
    sandbox_id: id,
    vcpus: spec.vcpus,
    memory_mib: spec.memoryMib,
    disk_mib: spec.diskMib ?? 0,
    max_duration_secs: effectiveDuration(limits, spec.maxDurationSecs),
    idle_timeout_secs: spec.idleTimeoutSecs,
  });
  await recordEvent(sql, {
    orgId,
    type: 'sandbox_start_requested',
    actor,
    resourceId: id,
    at,
    payload: {
      ...{ sandbox_id: id, name, run_id: runId },
      ...{ previous_status: status, status: 'starting', reason: 'requested' },
    },
  });
  return { status: 'starting', status_reason: 'scheduling', last_failure_message: null, run_id: runId };
}
