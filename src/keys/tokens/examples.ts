import type { Examples } from '../../http/examples.js';

const TOKEN = {
  id: '01a206d5-1c3e-7a55-9d21-6f0c5b8e4a77',
  name: 'laptop',
  prefix: 'msb_pat_8mQx2VbR',
  scopes: ['sandboxes:write', 'sandboxes:exec', 'volumes:write'],
  member_id: '01a206d5-0a7e-7c11-8a3b-5c5f7d0c1e22',
  email: 'ada@example.com',
  created_at: '2026-11-02T10:30:00Z',
  expires_at: '2026-12-02T10:30:00Z',
  last_used_at: null,
};

export const tokenExamples: Examples = {
  list_tokens: {
    parameters: { limit: 20 },
    answer: { data: [TOKEN], has_more: false, next_cursor: null },
  },
  create_token: {
    body: { name: 'laptop', expires_in_days: 30 },
    answer: { ...TOKEN, token: 'msb_pat_8mQx2VbREXAMPLEEXAMPLEEXAMPLEEXAMPLE03' },
  },
  revoke_token: {
    parameters: { token_id: TOKEN.id },
    answer: { message: 'the personal token "laptop" is revoked' },
  },
};
