import { SANDBOX_ID } from '../../http/example-ids.js';
import type { Examples } from '../../http/examples.js';

const ticket = {
  body: { cmd: '/bin/sh', env: { TERM: 'xterm-256color' }, rows: 40, cols: 120 },
  answer: {
    ticket: 'skt_0lpXc8DfQe2VnK4sTzWu7yRaBm1JgHo6iZtPvNdEk93',
    path: `/v1/sandboxes/${SANDBOX_ID}/terminal`,
    expires_at: '2026-11-23T05:16:46.207392Z',
  },
};

export const terminalExamples: Examples = {
  create_sandbox_terminal_ticket: { parameters: { sandbox_id: SANDBOX_ID }, ...ticket },
  create_sandbox_terminal_ticket_by_name: { parameters: { name: 'web' }, ...ticket },
  open_sandbox_terminal: {
    parameters: { sandbox_id: SANDBOX_ID },
    status: 400,
    answer: {
      error: {
        code: 'invalid_request',
        message: 'this address takes a WebSocket with a ticket as subprotocol',
        details: null,
      },
    },
  },
};
