import type { Examples } from '../http/examples.js';

const INVITATION = {
  id: '01a206d5-0a7e-7e63-8f10-4c8b2d0e5f66',
  email: 'grace@example.com',
  role: 'developer',
  labels: {},
  created_at: '2026-11-02T10:30:00Z',
  created_by: { kind: 'api_key', api_key_id: '01a206d4-e7db-71ab-8e51-8bb08f4eff9c', name: 'ci' },
  expires_at: '2026-11-05T10:30:00Z',
};

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
          labels: {},
          display_name: 'Ada',
          avatar_url: null,
          joined_at: '2026-11-02T10:30:00Z',
        },
      ],
      has_more: false,
      next_cursor: null,
    },
  },
  update_member: {
    parameters: { member_id: '01a206d5-0a7e-7c11-8a3b-5c5f7d0c1e22' },
    body: { role: 'developer', labels: { team: 'ml' } },
    answer: {
      id: '01a206d5-0a7e-7c11-8a3b-5c5f7d0c1e22',
      user_id: '01a206d5-0a7e-7d52-9e0f-3b7a1c9d4e55',
      email: 'ada@example.com',
      role: 'developer',
      labels: { team: 'ml' },
      display_name: 'Ada',
      avatar_url: null,
      joined_at: '2026-11-02T10:30:00Z',
    },
  },
  remove_member: {
    parameters: { member_id: '01a206d5-0a7e-7c11-8a3b-5c5f7d0c1e22' },
    answer: { message: 'ada@example.com is no longer a member' },
  },
  list_invitations: {
    parameters: { limit: 20 },
    answer: { data: [INVITATION], has_more: false, next_cursor: null },
  },
  create_invitation: {
    body: { email: 'grace@example.com', role: 'developer' },
    answer: {
      ...INVITATION,
      link: 'https://sandkeep.example.com/console/sign-in#ski_…',
    },
  },
  revoke_invitation: {
    parameters: { invitation_id: INVITATION.id },
    answer: { message: 'the invitation of grace@example.com is revoked' },
  },
};
