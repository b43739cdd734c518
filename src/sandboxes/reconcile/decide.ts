import type { Holding } from '../../engine/runtime.js';
import type { SandboxStatus } from '../../spec/statuses.js';

export interface Wanted {
  status: SandboxStatus;
  removed: boolean;
  runId: string | null;
  /** The store has the start of the current run. */
  runStarted: boolean;
  /** The store has no end of the current run. */
  runOpen: boolean;
  /** The current run has this worker. */
  placed: boolean;
  /** The engine has carried out a kill, so no start by a killed process is in flight. */
  quiet: boolean;
  /** The current run lacks the parts of its specification that it gets after its start. */
  lacksParts: boolean;
  /** The end that was requested keeps the memory. */
  keepsMemory: boolean;
  /** Its memory is on the disk, for a later run. */
  paused: boolean;
}

export type Step =
  | 'nothing'
  | 'start'
  | 'stop'
  | 'pause'
  | 'kill'
  | 'destroy'
  | 'drop_record'
  | 'discard_memory'
  | 'hand_over'
  | 'record_started'
  | 'record_exit'
  | 'record_cancelled'
  | 'record_lost'
  | 'record_memory_lost'
  | 'record_destroyed';

/** Compares the wanted state with the held one. Level-triggered: the next pass finds a lost or repeated step again. */
export function decide(wanted: Wanted, held: Holding | undefined): Step {
  // A step would hang like the call that the engine does not answer.
  if (held?.state === 'unknown') return 'nothing';

  const current = held !== undefined && held.runId === wanted.runId;

  // First, because other steps may delete the engine's record of the end.
  const hasEnded = held?.state === 'exited' || (wanted.runStarted && held?.failure != null);
  if (wanted.runOpen && current && hasEnded) return 'record_exit';

  // A start by a killed process may be in flight. The engine answers a kill after it.
  const mayStart =
    current && (held.state === 'prepared' || held.state === 'starting') && wanted.runOpen && !wanted.quiet;

  if (wanted.removed) {
    if (held?.state === 'running' || mayStart) return 'kill';
    if (held !== undefined) return wanted.runOpen && current && wanted.runStarted ? 'record_lost' : 'destroy';
    return wanted.runOpen ? (wanted.runStarted ? 'record_lost' : 'record_cancelled') : 'record_destroyed';
  }

  switch (wanted.status) {
    case 'starting':
      if (!wanted.placed) return held?.state === 'running' ? 'kill' : 'nothing';
      if (current && held.state === 'starting') return 'nothing';
      if (held?.state !== 'running') return 'start';
      return current ? 'record_started' : 'kill';
    case 'running':
      if (!current || held.state !== 'running') return 'record_lost';
      return wanted.lacksParts ? 'hand_over' : 'nothing';
    case 'stopping':
      if (held?.state === 'running') return wanted.keepsMemory ? 'pause' : 'stop';
      if (mayStart) return 'kill';
      return wanted.runStarted ? 'record_lost' : 'record_cancelled';
    case 'created':
    case 'stopped':
    case 'failed':
      // Somebody else started it.
      if (held?.state === 'running' || held?.state === 'starting') return 'kill';
      if (wanted.paused && held?.savedMib === undefined) return 'record_memory_lost';
      if (!wanted.paused && held?.savedMib !== undefined) return 'discard_memory';
      return held?.keepsRecord ? 'drop_record' : 'nothing';
  }
}
