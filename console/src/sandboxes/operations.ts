import { call } from '../lib/api';

export type Verb = 'start' | 'stop' | 'pause' | 'resume' | 'restart' | 'delete';

/** The operations on a sandbox that need no input. `done` follows the name of the sandbox. */
export const VERBS: Record<
  Verb,
  { title: string; done: string; run: (sandbox_id: string) => Promise<unknown> }
> = {
  start: {
    title: 'Start',
    done: 'starts',
    run: (sandbox_id) => call('POST /v1/sandboxes/{sandbox_id}/start', { path: { sandbox_id } }),
  },
  stop: {
    title: 'Stop',
    done: 'stops',
    run: (sandbox_id) => call('POST /v1/sandboxes/{sandbox_id}/stop', { path: { sandbox_id } }),
  },
  pause: {
    title: 'Pause',
    done: 'is being paused',
    run: (sandbox_id) => call('POST /v1/sandboxes/{sandbox_id}/pause', { path: { sandbox_id } }),
  },
  resume: {
    title: 'Resume',
    done: 'is being resumed',
    run: (sandbox_id) => call('POST /v1/sandboxes/{sandbox_id}/resume', { path: { sandbox_id } }),
  },
  restart: {
    title: 'Restart',
    done: 'restarts',
    run: (sandbox_id) => call('POST /v1/sandboxes/{sandbox_id}/restart', { path: { sandbox_id } }),
  },
  delete: {
    title: 'Delete',
    done: 'was deleted',
    run: (sandbox_id) => call('DELETE /v1/sandboxes/{sandbox_id}', { path: { sandbox_id } }),
  },
};

/** These runtimes can save memory. The others refuse a pause, so they get no button for it. */
const PAUSING: ReadonlySet<string | null | undefined> = new Set(['microvm', 'simulated']);

export function verbsOf({
  status,
  paused_at,
  runtime,
}: {
  status: string;
  paused_at?: string | null;
  runtime?: string | null;
}): Verb[] {
  const runs = status === 'running' || status === 'starting';
  const offered: Partial<Record<Verb, boolean>> = {
    start: !runs,
    stop: runs,
    restart: status === 'running',
    pause: status === 'running' && PAUSING.has(runtime),
    resume: status === 'stopped' && paused_at != null,
  };
  return (Object.keys(VERBS) as Verb[]).filter((verb) => offered[verb] ?? true);
}

export const DELETE_CONSEQUENCE =
  'Running processes are killed, and the disk goes. Runs, usage and audit events stay. This cannot be undone.';
