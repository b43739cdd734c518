import { SANDBOX_ID } from '../../http/example-ids.js';
import type { Examples } from '../../http/examples.js';

const PAGE = {
  data: [
    {
      kind: 'request',
      protocol: 'tls',
      name: 'files.example.net',
      address: '203.0.113.20',
      port: 443,
      rule: 'default',
      reason: 'no rule allows files.example.net on port 443',
      secret: null,
      count: 3,
      first_at: '2026-11-23T05:20:11.480Z',
      last_at: '2026-11-23T05:20:16.204Z',
    },
  ],
  has_more: false,
  next_cursor: null,
};

export const networkExamples: Examples = {
  list_denied_connections: { parameters: { sandbox_id: SANDBOX_ID }, answer: PAGE },
  list_denied_connections_by_name: { parameters: { name: 'web' }, answer: PAGE },
};
