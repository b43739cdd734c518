import { SANDBOX_ID } from '../../http/example-ids.js';
import type { Examples } from '../../http/examples.js';

const ROTATED = {
  sandbox: 'web',
  status: 'running',
  applied: false,
  policy: 'no_restart',
  changes: [
    {
      kind: 'secret',
      field: 'secret',
      name: 'API_KEY',
      change: 'rotated',
      before_ref: '$MSB_API_KEY',
      after_ref: '$MSB_API_KEY',
      disposition: 'live',
      allow_hosts: ['api.example.com'],
    },
  ],
  conflicts: [],
  warnings: [],
};

export const modificationExamples: Examples = {
  plan_sandbox_modification: {
    parameters: { sandbox_id: SANDBOX_ID },
    body: { policy: 'no_restart', secrets: [{ name: 'API_KEY', material: { type: 'provided' } }] },
    answer: ROTATED,
  },
  modify_sandbox: {
    parameters: { sandbox_id: SANDBOX_ID },
    body: { policy: 'no_restart', secrets: [{ name: 'API_KEY', value: 'a-new-key' }] },
    answer: { ...ROTATED, applied: true },
  },
};
