import { v7 as uuidv7 } from 'uuid';
import { recordEvent, type NewEvent } from '../audit/events/record.js';
import type { EventTarget } from '../db/write-batch.js';
import type { Instant } from '../lib/instant.js';
import { insertRun, type NewRun } from '../runs/queries.js';
import type { NextRun } from './next-run.js';
import type { SandboxRow } from './spec/fields.js';

/** What a sandbox becomes whose run is admitted. */
export interface Admitted {
  status: 'starting';
  status_reason: 'scheduling';
  last_failure_message: null;
  run_id: string;
  next_run: null;
}

type Subject = Pick<SandboxRow, 'org_id' | 'id' | 'name' | 'status'>;

/** The rows and the event that begin a run. */
export interface Begun {
  admitted: Admitted;
  run: NewRun;
  event: NewEvent<'sandbox_start_requested'>;
}

/** The run of a sandbox at rest that is admitted now. Nothing is written yet. */
export function admittedRun(sandbox: Subject, { actor, ...needs }: NextRun, at: Instant): Begun {
  const { org_id: orgId, id, name, status } = sandbox;
  const runId = uuidv7();
  return {
    admitted: {
      ...({ status: 'starting', status_reason: 'scheduling', last_failure_message: null } as const),
      ...{ run_id: runId, next_run: null },
    },
    run: { org_id: orgId, id: runId, sandbox_id: id, ...needs },
    event: {
      orgId,
      type: 'sandbox_start_requested',
      actor,
      resourceId: id,
      at,
      payload: {
        ...{ sandbox_id: id, name, run_id: runId },
        ...{ previous_status: status, status: 'starting', reason: 'requested' },
      },
    },
  };
}

/**
 * Admits a run of a sandbox at rest, whose row the transaction holds: the run and the audit event are written together with
 * what is returned, which the caller writes; the reconciler takes it from there.
 */
export async function beginRun(
  target: EventTarget,
  sandbox: Subject,
  next: NextRun,
  at: Instant,
): Promise<Admitted> {
  const { admitted, run, event } = admittedRun(sandbox, next, at);
  await insertRun(target, run);
  await recordEvent(target, event);
  return admitted;
}
