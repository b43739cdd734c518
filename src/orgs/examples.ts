import { ORG_ID } from '../http/example-ids.js';
import type { Examples } from '../http/examples.js';

export const orgExamples: Examples = {
  get_org: {
    answer: {
      id: ORG_ID,
      name: 'Acme',
      slug: 'acme',
      mfa_required: false,
      role: 'owner',
      runtime: 'docker',
      created_at: '2026-11-01T09:00:00Z',
      updated_at: '2026-11-01T09:00:00Z',
    },
  },
};
