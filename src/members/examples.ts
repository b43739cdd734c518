import type { Examples } from '../http/examples.js';

export const memberExamples: Examples = {
  list_members: {
    parameters: { limit: 20 },
    answer: {
      data: [
        {
          id: '01a206d5-0a7e-7c11-8a3b-5c5f7d0c1e22',
          user_id: '01a206d5-0a7e-7d52-9e0f-3b7a1c9d4e55',
          email: 'ada@example.com',
          role: 'admin',
          display_name: 'Ada',
          avatar_url: null,
          joined_at: '2026-11-02T10:30:00Z',
        },
      ],
      has_more: false,
      next_cursor: null,
    },
  },
};
