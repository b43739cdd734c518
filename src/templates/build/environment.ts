import { FULL_ACCESS } from '../../access/access.js';
import type { Caller } from '../../access/caller.js';
import type { WorkerContext } from '../../context.js';
import { inTransaction, type EventSql } from '../../db/transaction.js';
import type { PacedSteps } from '../../fairness/paced-steps.js';
import type { OpenSessions } from '../../sandboxes/sessions/open-sessions.js';
import type { Term } from '../../workers/lease.js';
import { lockTemplate, type TemplateRow } from '../queries.js';
import type { BuildLog } from './log.js';

/** Why a build ends early. */
export type AbortReason = 'cancelled' | 'timed_out' | 'interrupted';

/** A build in progress, for its parts. */
export interface BuildEnvironment {
  ctx: WorkerContext;
  sessions: OpenSessions;
  term: Term;
  row: TemplateRow;
  log: BuildLog;
  /** For work on what callers sent. */
  turns: PacedSteps;
  /** Aborts with an AbortReason. */
  signal: AbortSignal;
}

/** The actor of the request. The labels of its key are among those of the template. */
export function callerOfBuild({ org_id: orgId, actor }: TemplateRow): Caller {
  return { orgId, actor, access: FULL_ACCESS };
}

/** A write of a build in progress: nothing is written for one that has ended, or without the lease. */
export async function inBuild<T>(
  { ctx, term, row }: BuildEnvironment,
  work: (tx: EventSql, row: TemplateRow) => Promise<T>,
): Promise<T> {
  return inTransaction(ctx.pool, async (tx) => {
    await term.assertHeld(tx);
    const current = await lockTemplate(tx, row);
    if (current?.status !== 'building') throw new BuildEndedError();
    return work(tx, current);
  });
}

/** A request or another process has ended the build. */
export class BuildEndedError extends Error {}
