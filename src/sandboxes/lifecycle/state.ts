import type { SandboxStatus } from '../../spec/statuses.js';

/** The lifecycle: the effect of each event in each status. The types require every combination. */

/** `pause`, `resume`: of sandboxes without saved memory. `paused.ts` has the operations on paused ones. */
export const OPERATIONS = ['start', 'stop', 'restart', 'pause', 'resume', 'destroy'] as const;
export type Operation = (typeof OPERATIONS)[number];

/** Events of the current run, from the runtime's record. */
export type Occurrence =
  | 'run_started'
  /** The exit code is 0, or the end was requested. */
  | 'run_ended'
  /** Another exit code, or a kill from outside. */
  | 'run_crashed'
  /** The runtime refused the start. */
  | 'start_failed'
  /** The runtime has neither the run nor a record of its end. */
  | 'run_lost'
  /** It ended, and its memory is on the disk. */
  | 'run_paused';

/**
 * `same`: no effect. `gone`: the sandbox is deleted. `queued`: the status stays, and an admitted run follows the
 * current one.
 */
export type Outcome = SandboxStatus | 'same' | 'queued' | 'gone' | 'refused';

/** Records of past runs have no effect. */
const AT_REST = {
  run_started: 'same',
  run_ended: 'same',
  run_crashed: 'same',
  start_failed: 'same',
  run_lost: 'same',
  run_paused: 'same',
} as const;

export const TRANSITIONS: Record<SandboxStatus, Record<Operation | Occurrence, Outcome>> = {
  created: {
    start: 'starting',
    stop: 'refused',
    restart: 'starting',
    pause: 'refused',
    resume: 'refused',
    destroy: 'gone',
    ...AT_REST,
  },
  starting: {
    start: 'same',
    stop: 'stopping',
    restart: 'same',
    pause: 'refused',
    resume: 'same',
    destroy: 'gone',
    run_started: 'running',
    run_ended: 'stopped',
    run_crashed: 'failed',
    start_failed: 'failed',
    run_lost: 'failed',
    run_paused: 'stopped',
  },
  running: {
    start: 'refused',
    stop: 'stopping',
    restart: 'stopping',
    pause: 'stopping',
    resume: 'same',
    destroy: 'gone',
    run_started: 'same',
    run_ended: 'stopped',
    run_crashed: 'failed',
    start_failed: 'same',
    run_lost: 'failed',
    run_paused: 'stopped',
  },
  stopping: {
    // A start with `wait_for` is queued.
    start: 'refused',
    stop: 'same',
    restart: 'queued',
    pause: 'refused',
    resume: 'refused',
    destroy: 'gone',
    // The requested stop continues.
    run_started: 'same',
    run_ended: 'stopped',
    // The stop was requested, so every exit code is a success.
    run_crashed: 'stopped',
    start_failed: 'stopped',
    run_lost: 'stopped',
    run_paused: 'stopped',
  },
  stopped: {
    start: 'starting',
    stop: 'same',
    restart: 'starting',
    pause: 'refused',
    resume: 'refused',
    destroy: 'gone',
    ...AT_REST,
  },
  failed: {
    start: 'starting',
    stop: 'same',
    restart: 'starting',
    pause: 'refused',
    resume: 'refused',
    destroy: 'gone',
    ...AT_REST,
  },
};
