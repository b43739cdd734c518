import { call } from '../lib/api';

export type Verb = 'start' | 'stop' | 'restart' | 'delete';

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

export const DELETE_CONSEQUENCE =
  'Running processes are killed, and the disk goes. Runs, usage and audit events stay. This cannot be undone.';
