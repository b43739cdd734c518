import { RECONCILER } from '../../audit/events/actor.js';
import { recordEvents, type NewEvent } from '../../audit/events/record.js';
import type { Context } from '../../context.js';
import { announceChanges } from '../../db/changes.js';
import type { EventSql } from '../../db/transaction.js';
import { WriteBatch } from '../../db/write-batch.js';
import type { Instant } from '../../lib/instant.js';
import { microsOf, shortInstant } from '../../lib/instant.js';
import { admittedMillis } from '../../runs/run-id.js';
import { insertPauses } from '../../runs/pauses.js';
import { insertRun, readRunTimes, writeRunTimes, type NewRun, type RunTimes } from '../../runs/queries.js';
import type { Exit, LatePart } from '../../engine/runtime.js';
import { deleteSecretsOf } from '../../secrets/queries.js';
import { REGISTRY } from '../../secrets/secrets.js';
import { commandAfterRun, RUNNING_COMMAND } from './command-state.js';
import { admittedRun } from '../lifecycle/request-run.js';
import { isPauseReason } from '../lifecycle/paused.js';
import { TRANSITIONS, type Occurrence, type Outcome } from '../lifecycle/state.js';
import { stopCause, type StopCause } from '../lifecycle/stop-reason.js';
import { imageMoved } from './moved-image.js';
import {
  countSavedMemory,
  lockObserved,
  noteTakes,
  writeObserved,
  type ObservedSandbox,
} from './record-queries.js';

export interface Observation {
  orgId: string;
  sandboxId: string;
  runId: string;
  occurrence: Occurrence;
  /** Null: the run never started. */
  startedAt: Instant | null;
  stoppedAt: Instant | null;
  reason: string | null;
  message: string | null;
  exit: Exit | null;
  imageDigest?: string | undefined;
  /** The parts that a member of a pool takes. Undefined: none. */
  takes?: readonly LatePart[] | undefined;
  /** With `run_paused`: the room of its memory on the disk. */
  savedMib?: number | undefined;
}

type RunEvent =
  NewEvent<`sandbox_${'started' | 'image_moved' | 'run_closed' | 'stopped' | 'paused' | 'failed' | 'start_requested'}`>;

/** A start or an end that was recorded. `seconds`: since it was requested; undefined: nobody requested this end. */
export type RunChange =
  { kind: 'started'; seconds: number } | { kind: 'ended'; reason: string; seconds: number | undefined };

interface Recorded {
  sandbox: ObservedSandbox;
  run: RunTimes;
  events: RunEvent[];
  changes: RunChange[];
  next?: NewRun;
  savedMib?: number | undefined;
}

/**
 * Writes the observations with their audit events in the transaction `tx`. A repeated observation, or one of an older
 * run, has no effect.
 */
export async function recordObservations(
  ctx: Pick<Context, 'now'> & Partial<Pick<Context, 'runtime'>>,
  tx: EventSql,
  observations: readonly Observation[],
): Promise<RunChange[]> {
  const sandboxes = new Map((await lockObserved(tx, observations)).map((row) => [keyOf(row), row]));
  // After the sandboxes are locked: every change of a run locks its sandbox.
  const runs = new Map((await readRunTimes(tx, observations)).map((row) => [keyOf(row), row]));
  // One time for all, so that a clock that is set back cannot order an end before its start.
  const at = ctx.now();
  const recorded: Recorded[] = [];
  const started: Observation[] = [];
  for (const observation of observations) {
    const { orgId, sandboxId, runId } = observation;
    const sandbox = sandboxes.get(keyOf({ org_id: orgId, id: sandboxId }));
    const run = runs.get(keyOf({ org_id: orgId, id: runId }));
    if (!run || sandbox?.run_id !== runId) continue;
    const before = { sandbox, run, events: [], changes: [] };
    const opened = startOf(before, observation, at);
    if (opened) started.push(observation);
    const current = opened ?? before;
    // An end seen together with the start has both events.
    const ended = observation.occurrence === 'run_started' ? undefined : endOf(current, observation, at);
    const last = ended ?? opened;
    if (last) recorded.push(followed(last, at));
  }
  if (recorded.length === 0) return [];
  // Not in the batch, which is one statement: it changes each row once.
  for (const { orgId, sandboxId, takes } of started)
    if (takes !== undefined) await noteTakes(tx, orgId, sandboxId, takes);
  const batch = new WriteBatch(tx);
  await writeRunTimes(
    batch,
    recorded.map(({ run }) => run),
  );
  await writeObserved(
    batch,
    recorded.map(({ sandbox }) => sandbox),
  );
  // The image is there, so the registry credentials are no longer needed.
  if (started.length > 0 && !ctx.runtime?.pullsEachStart) await deleteSecretsOf(batch, started, REGISTRY);
  await recordEvents(
    batch,
    recorded.flatMap(({ events }) => events),
  );
  await announceChanges(
    batch,
    recorded.map(({ sandbox }) => sandbox.id),
  );
  await batch.send();
  // After the end of the previous run: a sandbox has at most one open run.
  const next = new WriteBatch(tx);
  const paused = recorded.flatMap(({ sandbox, run, savedMib }) =>
    savedMib !== undefined && sandbox.paused_at !== null
      ? [{ orgId: run.org_id, runId: run.id, savedMib }]
      : [],
  );
  await insertPauses(next, paused);
  await countSavedMemory(next, paused);
  for (const { next: run } of recorded) if (run) await insertRun(next, run);
  await next.send();
  return recorded.flatMap(({ changes }) => changes);
}

function followed(recorded: Recorded, at: Instant): Recorded {
  const { sandbox, events } = recorded;
  if (sandbox.status !== 'stopped' || sandbox.next_run === null || sandbox.removed_at) return recorded;
  const { admitted, run, event } = admittedRun(sandbox, sandbox.next_run, at);
  return {
    ...recorded,
    sandbox: { ...sandbox, ...admitted },
    events: [...events, event],
    next: run,
  };
}

/** Undefined when the run has a start or an end already. */
function startOf(
  { sandbox, run, events, changes }: Recorded,
  { startedAt, imageDigest }: Observation,
  at: Instant,
): Recorded | undefined {
  if (startedAt === null || run.started_at !== null || run.end_reason !== null) return undefined;
  const outcome = sandbox.removed_at ? 'same' : TRANSITIONS[sandbox.status].run_started;
  const status = outcome === 'running' ? outcome : sandbox.status;
  const event: RunEvent = {
    orgId: sandbox.org_id,
    type: 'sandbox_started',
    actor: RECONCILER,
    resourceId: sandbox.id,
    at,
    payload: {
      sandbox_id: sandbox.id,
      name: sandbox.name,
      run_id: run.id,
      previous_status: sandbox.status,
      status,
      reason: 'run_started',
      ...(run.resumes ? { resumes: true } : {}),
      started_at: shortInstant(startedAt),
    },
  };
  const moved =
    imageDigest !== undefined && sandbox.image_digest !== null && imageDigest !== sandbox.image_digest
      ? imageMoved(sandbox, { digest: imageDigest, disk: 'replaced' }, at)
      : undefined;
  const change = {
    // While it waited, the message had the reason.
    last_failure_message: null,
    status,
    status_reason: null,
    stop_reason: null,
    stop_message: null,
    command: run.command === null ? null : run.resumes ? sandbox.command : RUNNING_COMMAND,
    paused_at: null,
    image_digest: imageDigest ?? sandbox.image_digest,
    started_at: startedAt,
    stopped_at: null,
    changed_at: at,
  };
  return {
    sandbox: { ...sandbox, ...change },
    run: { ...run, started_at: startedAt, seen_at: startedAt },
    events: [...events, ...(moved ? [moved] : []), event],
    changes: [
      ...changes,
      { kind: 'started', seconds: secondsSince(BigInt(admittedMillis(run.id)) * 1_000n, at) },
    ],
  };
}

/** Undefined when the run has an end already. */
function endOf(
  { sandbox, run, events, changes }: Recorded,
  observation: Observation,
  at: Instant,
): Recorded | undefined {
  const { occurrence, message, exit, savedMib } = observation;
  const outcome = sandbox.removed_at ? 'gone' : outcomeOf({ sandbox, run }, observation);
  if (outcome === 'same' || run.end_reason !== null) return undefined;
  const reason = endReasonOf(run, observation);
  // Without a recorded end, the time at which the run was last seen counts.
  const stoppedAt = latest(run.started_at, observation.stoppedAt ?? run.seen_at);
  const ended = outcome === 'stopped' || outcome === 'failed' ? outcome : null;
  const isPaused =
    occurrence === 'run_paused' && isPauseReason(reason) && savedMib !== undefined && ended !== null;
  const isStillPaused = staysPaused(run, reason);
  const cause: StopCause = isStillPaused
    ? { stop_reason: 'paused', stop_message: `it stays paused: ${message ?? 'its resume was cancelled'}` }
    : stopCause(run, reason, message);
  const event: RunEvent = {
    orgId: sandbox.org_id,
    type: ended === null ? 'sandbox_run_closed' : isPaused ? 'sandbox_paused' : `sandbox_${ended}`,
    actor: RECONCILER,
    resourceId: sandbox.id,
    at,
    payload: {
      sandbox_id: sandbox.id,
      name: sandbox.name,
      run_id: run.id,
      previous_status: sandbox.status,
      status: ended,
      reason,
      // The deletion has an event of its own.
      ...(ended === null ? {} : { stop_reason: cause.stop_reason }),
      message: ended === null ? message : cause.stop_message,
      exit_code: exit?.code ?? null,
      started_at: shortOrNull(run.started_at),
      stopped_at: shortOrNull(stoppedAt),
    },
  };
  const times = stoppedAt === null ? {} : { stopped_at: stoppedAt };
  const status =
    ended === null
      ? {}
      : {
          status: ended,
          status_reason: null,
          last_failure_message: ended === 'failed' || isStillPaused ? message : null,
          ...cause,
          paused_at: isPaused ? stoppedAt : isStillPaused ? sandbox.paused_at : null,
          command:
            isPaused || isStillPaused
              ? sandbox.command
              : commandAfterRun(sandbox.command, run, {
                  exit: exit ?? null,
                  // A resume that never ran gives up memory in which nothing ran since its pause.
                  stoppedAt: stoppedAt ?? sandbox.stopped_at,
                  // A pause requests no end of the command.
                  wasAsked: run.stop_reason !== null && !isPauseReason(run.stop_reason),
                }),
        };
  // The request to stop was the last change of a sandbox that is stopping.
  const seconds = sandbox.status === 'stopping' ? secondsSince(microsOf(sandbox.changed_at), at) : undefined;
  return {
    sandbox: { ...sandbox, ...times, ...status, changed_at: at },
    run: { ...run, stopped_at: stoppedAt, end_reason: reason },
    events: [...events, event],
    changes: [...changes, { kind: 'ended', reason, seconds }],
    savedMib,
  };
}

/**
 * While a sandbox is being paused, no other end was requested. An admitted run follows every end. Where the memory is
 * not saved, it begins from the disk.
 */
function outcomeOf(
  { sandbox: { status, next_run }, run }: Pick<Recorded, 'sandbox' | 'run'>,
  observation: Observation,
): Outcome {
  const { occurrence } = observation;
  if (staysPaused(run, endReasonOf(run, observation)))
    return status === 'starting' || status === 'stopping' ? 'stopped' : 'same';
  const isPausing = status === 'stopping' && next_run === null && isPauseReason(run.stop_reason);
  return TRANSITIONS[isPausing ? 'running' : status][occurrence];
}

/** A stop or a restart may have replaced the request to pause since the engine was listed. */
function endReasonOf(run: RunTimes, { occurrence, reason }: Observation): string {
  if (occurrence === 'run_paused' && run.stop_reason !== null) return run.stop_reason;
  return reason ?? occurrence;
}

/** A resume that ended before it began. A caller who stops it does not want the memory. */
function staysPaused({ resumes, started_at, stop_reason }: RunTimes, reason: string): boolean {
  if (!resumes || started_at !== null) return false;
  return reason === 'no_room_in_time' || (reason === 'cancelled' && stop_reason !== 'requested');
}

/** A clock that was set back must not make a run of negative length. */
function latest(startedAt: Instant | null, stoppedAt: Instant | null): Instant | null {
  if (startedAt === null) return null;
  return stoppedAt !== null && stoppedAt > startedAt ? stoppedAt : startedAt;
}

function secondsSince(micros: bigint, at: Instant): number {
  return Math.max(0, Number(microsOf(at) - micros) / 1_000_000);
}

const keyOf = ({ org_id, id }: { org_id: string; id: string }) => `${org_id}/${id}`;

function shortOrNull(instant: Instant | null): Instant | null {
  return instant && shortInstant(instant);
}
