import type { SandboxStatus } from './spec/schema.js';

/**
 * The lifecycle of a sandbox: what each event does in each status. Pure, and complete by its type: a status or an event
 * without an answer does not compile.
 */

/** What callers ask for. */
export const OPERATIONS = ['start', 'stop', 'restart', 'destroy'] as const;
export type Operation = (typeof OPERATIONS)[number];

/** What happens to the run under way, as the runtime recorded it. */
export type Occurrence =
  /** The main process runs. */
  | 'run_started'
  /** It ended with code 0, or was ended on request. */
  | 'run_ended'
  /** It ended with another code, or was killed from outside. */
  | 'run_crashed'
  /** The runtime refused to start it. */
  | 'start_failed'
  /** The runtime holds nothing of it any more, and no record of its end. */
  | 'run_lost';

/**
 * The next status, `same` when the event changes nothing, `gone` when the sandbox ceases, or `refused`. `queued`: the status
 * stays, and a run is admitted to follow the one that ends.
 */
export type Outcome = SandboxStatus | 'same' | 'queued' | 'gone' | 'refused';

/** An occurrence in a status that has no run under way is a record of the past: it changes nothing. */
const AT_REST = {
  run_started: 'same',
  run_ended: 'same',
  run_crashed: 'same',
  start_failed: 'same',
  run_lost: 'same',
} as const;

export const TRANSITIONS: Record<SandboxStatus, Record<Operation | Occurrence, Outcome>> = {
  created: { start: 'starting', stop: 'refused', restart: 'starting', destroy: 'gone', ...AT_REST },
  starting: {
    start: 'same',
    stop: 'stopping',
    restart: 'same',
    destroy: 'gone',
    run_started: 'running',
    run_ended: 'stopped',
    run_crashed: 'failed',
    start_failed: 'failed',
    run_lost: 'failed',
  },
  running: {
    start: 'refused',
    stop: 'stopping',
    restart: 'stopping',
    destroy: 'gone',
    run_started: 'same',
    run_ended: 'stopped',
    run_crashed: 'failed',
    start_failed: 'same',
    run_lost: 'failed',
  },
  stopping: {
    // A start that waits (`wait_for`) is queued like a restart.
    start: 'refused',
    stop: 'same',
    restart: 'queued',
    destroy: 'gone',
    // The run is opened with the time the runtime recorded; the stop that was asked for meanwhile goes on.
    run_started: 'same',
    run_ended: 'stopped',
    // Whoever asked to stop gets what was asked for, whatever the exit code.
    run_crashed: 'stopped',
    start_failed: 'stopped',
    run_lost: 'stopped',
  },
  stopped: { start: 'starting', stop: 'same', restart: 'starting', destroy: 'gone', ...AT_REST },
  failed: { start: 'starting', stop: 'same', restart: 'starting', destroy: 'gone', ...AT_REST },
};
