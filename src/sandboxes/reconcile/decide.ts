import type { Holding } from '../../runtimes/runtime.js';
import type { SandboxStatus } from '../spec/schema.js';

/** What the store says of a sandbox that the reconciler looks at. */
export interface Wanted {
  status: SandboxStatus;
  removed: boolean;
  runId: string | null;
  /** Has the run under way been recorded as started? */
  runStarted: boolean;
  /** Is the run under way in the store, that is, not closed? */
  runOpen: boolean;
  /** Has the run under way a place on this worker? */
  placed: boolean;
  /** Can no start of it be under way at the engine any more, one that a process which was killed had begun? */
  quiet: boolean;
}

/** The one thing to do next for a sandbox. */
export type Step =
  | 'nothing'
  | 'start'
  | 'stop'
  | 'kill'
  | 'destroy'
  | 'record_started'
  | 'record_exit'
  | 'record_cancelled'
  | 'record_lost'
  | 'record_destroyed';

/**
 * Compares what should be with what is. Level-triggered: it needs no history, so a step that was lost or done twice is
 * found at the next look.
 */
export function decide(wanted: Wanted, held: Holding | undefined): Step {
  const current = held !== undefined && held.runId === wanted.runId;

  // The end of a run is recorded before anything else happens to what holds the record.
  if (wanted.runOpen && current && held.state === 'exited') return 'record_exit';

  // What has not started may still: the engine answers the kill when it is done with a start that was under way.
  const mayStart = current && held.state === 'prepared' && wanted.runOpen && !wanted.quiet;

  if (wanted.removed) {
    if (held?.state === 'running' || mayStart) return 'kill';
    if (held !== undefined) return wanted.runOpen && current && wanted.runStarted ? 'record_lost' : 'destroy';
    return wanted.runOpen ? (wanted.runStarted ? 'record_lost' : 'record_cancelled') : 'record_destroyed';
  }

  switch (wanted.status) {
    case 'starting':
      if (!wanted.placed) return held?.state === 'running' ? 'kill' : 'nothing';
      if (held?.state !== 'running') return 'start';
      return current ? 'record_started' : 'kill';
    case 'running':
      return current && held.state === 'running' ? 'nothing' : 'record_lost';
    case 'stopping':
      if (held?.state === 'running') return 'stop';
      if (mayStart) return 'kill';
      return wanted.runStarted ? 'record_lost' : 'record_cancelled';
    case 'created':
    case 'stopped':
    case 'failed':
      // Somebody started it behind our back: the store says it rests.
      return held?.state === 'running' ? 'kill' : 'nothing';
  }
}
