import { BY_KEY, SANDBOX_ID } from '../../http/example-ids.js';
import type { Examples } from '../../http/examples.js';

const SESSION_ID = '01a0a8a1-7d10-7c3a-9e52-3b4c5d6e7f80';

const PAGE = {
  data: [
    {
      id: SESSION_ID,
      sandbox_id: SANDBOX_ID,
      kind: 'exec',
      actor: BY_KEY,
      user: null,
      program: 'sleep',
      argument_count: 1,
      opened_at: '2026-11-23T05:20:11.480201Z',
      end_requested_at: null,
    },
  ],
  has_more: false,
  next_cursor: null,
};

const addresses = { '': { sandbox_id: SANDBOX_ID }, _by_name: { name: 'web' } };

export const sessionExamples: Examples = Object.fromEntries(
  Object.entries(addresses).flatMap(([by, parameters]) => [
    [`list_sandbox_sessions${by}`, { parameters, answer: PAGE }],
    [
      `end_sandbox_session${by}`,
      {
        parameters: { ...parameters, session_id: SESSION_ID },
        status: 404,
        answer: {
          error: { code: 'session_not_found', message: 'there is no such session', details: null },
        },
      },
    ],
  ]),
);
