import type { Examples } from '../http/examples.js';

export const ORG_ID = '01a206d4-e6c6-7503-99ae-e28acd8dd34c';

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
