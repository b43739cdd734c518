import { BY_KEY } from '../http/example-ids.js';
import type { Examples } from '../http/examples.js';

const id = '01a206d4-f6a0-72d3-a012-c0826dabceec';

const KEY = {
  id,
  name: 'ci',
  prefix: 'skp_AYNLxbor',
  scopes: ['sandboxes:write'],
  labels: { team: 'ml' },
  cidrs: ['10.0.0.0/8'],
  created_at: '2026-11-23T05:15:49.775418Z',
  created_by: BY_KEY,
  expires_at: '2027-11-01T00:00:00Z',
  last_used_at: null,
  rotated_at: null,
  previous_secret_until: null,
  revoked_at: null,
};

export const keyExamples: Examples = {
  list_keys: {
    parameters: { limit: 20 },
    answer: { data: [KEY], has_more: false, next_cursor: null },
  },
  create_key: {
    body: {
      name: 'ci',
      scopes: ['sandboxes:write'],
      labels: { team: 'ml' },
      cidrs: ['10.0.0.0/8'],
    },
    answer: { ...KEY, expires_at: null, key: 'skp_AYNLxborEXAMPLEEXAMPLEEXAMPLEEXAMPLE01' },
  },
  get_key: { parameters: { id }, answer: KEY },
  rotate_key: {
    parameters: { id },
    body: { overlap_secs: 3600 },
    answer: {
      ...KEY,
      prefix: 'skp_m31C1Ix3',
      rotated_at: '2026-11-24T08:00:00.351569Z',
      previous_secret_until: '2026-11-24T09:00:00.351569Z',
      key: 'skp_m31C1Ix3EXAMPLEEXAMPLEEXAMPLEEXAMPLE02',
    },
  },
  revoke_key: { parameters: { id }, answer: { message: 'the key "ci" is revoked' } },
};
