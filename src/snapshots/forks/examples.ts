import { SANDBOX_ID } from '../../http/example-ids.js';
import type { Examples } from '../../http/examples.js';

const FORK_ID = '01a0a8a1-5b6e-7d21-9c1b-6a1f0e4c2d60';
const created_at = '2026-11-23T05:20:11.480201Z';
const ended = '2026-11-23T05:20:13.120433Z';
const body = { count: 2, name_prefix: 'attempt', labels: { task: 'build' } };

const QUEUED = {
  id: FORK_ID,
  status: 'queued',
  sandbox_id: SANDBOX_ID,
  sandbox_name: 'web',
  count: 2,
  size_bytes: null,
  error: null,
  created_at,
  updated_at: created_at,
  completed_at: null,
};
const SUCCEEDED = {
  ...QUEUED,
  status: 'succeeded',
  size_bytes: 104857600,
  updated_at: ended,
  completed_at: ended,
};
const copies = (status: string) => [
  { id: '01a0a8a1-5b6e-7d21-9c1b-6a1f0e4c2d61', name: 'attempt-1', slug: 'calm-otter-x7k2', status },
  { id: '01a0a8a1-5b6e-7d21-9c1b-6a1f0e4c2d62', name: 'attempt-2', slug: 'keen-heron-p4d9', status },
];

export const forkExamples: Examples = {
  fork_sandbox: {
    parameters: { sandbox_id: SANDBOX_ID },
    body,
    answer: { ...QUEUED, sandboxes: copies('starting') },
  },
  fork_by_name: {
    parameters: { name: 'web' },
    body,
    answer: { ...QUEUED, sandboxes: copies('starting') },
  },
  list_fork_operations: { answer: { data: [SUCCEEDED], has_more: false, next_cursor: null } },
  get_fork_operation: {
    parameters: { id: FORK_ID },
    answer: { ...SUCCEEDED, sandboxes: copies('running') },
  },
};
