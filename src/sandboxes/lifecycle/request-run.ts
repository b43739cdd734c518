import { keyIdOf } from '../../audit/events/actor.js';
import { recordEvent, type NewEvent } from '../../audit/events/record.js';
import type { EventTarget } from '../../db/write-batch.js';
import type { Instant } from '../../lib/instant.js';
import { newId } from '../../lib/uuid.js';
import { insertRun, type NewRun } from '../../runs/queries.js';
import type { NextRun, RunCause } from './next-run.js';
import type { SandboxRow } from '../row.js';

const REQUESTED: RunCause = { reason: 'requested' };

export interface Admitted {
  status: 'starting';
  status_reason: 'scheduling';
  last_failure_message: null;
  stop_reason: null;
  stop_message: null;
  command: SandboxRow['command'];
  run_id: string;
  next_run: null;
}

type Subject = Pick<SandboxRow, 'org_id' | 'id' | 'name' | 'status' | 'paused_at' | 'command'>;

export interface Begun {
  admitted: Admitted;
  run: NewRun;
  event: NewEvent<'sandbox_start_requested'>;
}

/** Makes the rows of a new run of a settled sandbox, without writing them. A paused one resumes. */
export function admittedRun(
  sandbox: Subject,
  { actor, cause = REQUESTED, ...needs }: NextRun,
  at: Instant,
): Begun {
  const { org_id: orgId, id, name, status } = sandbox;
  const resumes = sandbox.paused_at !== null;
  const runId = newId();
  return {
    admitted: {
      ...({ status: 'starting', status_reason: 'scheduling', last_failure_message: null } as const),
      stop_reason: null,
      stop_message: null,
      command: resumes ? sandbox.command : null,
      run_id: runId,
      next_run: null,
    },
    run: {
      ...needs,
      org_id: orgId,
      id: runId,
      sandbox_id: id,
      resumes,
      started_by_key: keyIdOf(actor),
    },
    event: {
      orgId,
      type: 'sandbox_start_requested',
      actor,
      resourceId: id,
      at,
      payload: {
        sandbox_id: id,
        name,
        run_id: runId,
        previous_status: status,
        status: 'starting',
        ...cause,
        ...(resumes ? { resumes } : {}),
      },
    },
  };
}

/**
 * Writes a new run and its audit event. The transaction has locked the settled sandbox, and the caller writes the
 * returned columns.
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
