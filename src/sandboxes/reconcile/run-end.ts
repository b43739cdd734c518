import type { Holding } from '../../engine/runtime.js';
import { isPauseReason } from '../lifecycle/paused.js';
import type { ReconcileRow } from './queries.js';
import type { Observation } from './record.js';

export function observationOf(
  { orgId, sandboxId }: { orgId: string; sandboxId: string },
  runId: string,
): Observation {
  const nothing = { startedAt: null, stoppedAt: null, reason: null, message: null, exit: null };
  return { orgId, sandboxId, runId, occurrence: 'run_ended', ...nothing };
}

/** The convention of shells and container runtimes. */
const EXIT_HINTS: Record<number, string> = {
  126: 'the command is not executable',
  127: 'there is no such command in the image',
  137: 'it was killed',
};

/**
 * The reason of the requested end. Undefined: no end was requested. A pause requests an end that keeps the memory, so
 * no other end counts as requested.
 */
function askedToEnd({ wanted, stopReason }: ReconcileRow): string | undefined {
  if (isPauseReason(stopReason)) return wanted.removed ? 'destroyed' : undefined;
  if (stopReason !== null) return stopReason;
  return wanted.removed ? 'destroyed' : undefined;
}

/** A requested exit, or one with code 0, is no crash. */
export function exitOf(
  { startedAt, finishedAt: stoppedAt, exit, failure, imageDigest, savedMib }: Holding,
  row: ReconcileRow,
): Partial<Observation> {
  const times = { startedAt, stoppedAt, exit, imageDigest };
  if (savedMib !== undefined && isPauseReason(row.stopReason))
    return { ...times, occurrence: 'run_paused', reason: row.stopReason, savedMib };
  const asked = askedToEnd(row);
  if (asked !== undefined) return { ...times, occurrence: 'run_ended', reason: asked };
  if (failure) return { ...times, occurrence: 'run_crashed', ...failure };
  if (exit?.outOfMemory && exit.code !== 0) {
    return {
      ...times,
      occurrence: 'run_crashed',
      reason: 'out_of_memory',
      message: 'the sandbox ran out of memory',
    };
  }
  if (exit?.code === 0) return { ...times, occurrence: 'run_ended', reason: 'completed' };
  const hint = exit && EXIT_HINTS[exit.code];
  const message = `the main process ended with code ${exit?.code ?? 'unknown'}${hint ? ` (${hint})` : ''}`;
  return { ...times, occurrence: 'run_crashed', reason: 'crashed', message };
}
