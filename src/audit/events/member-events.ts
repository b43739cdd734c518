import { Type } from 'typebox';
import { DateTime, Nullable, StringMap, Uuid, Words } from '../../http/schema.js';
import { event } from './catalogue-entry.js';

const text = Type.String();
const reason = Type.String({ description: 'The reason, as a code.' });
const ANYONE = ['api_key', 'user', 'system'] as const;

/** Events of earlier releases have no labels. */
const member = {
  member_id: Uuid,
  user_id: Uuid,
  redacted_email: text,
  role: text,
  labels: Type.Optional(StringMap()),
};
const invitation = { invitation_id: Uuid, redacted_email: text, role: text, labels: StringMap() };
const memberSession = { session_id: Uuid, ...member };

/** `name`: in the words of the member. */
const passkey = { ...member, passkey_id: Uuid, name: text };

/** People of an organization: their memberships, invitations and sessions of the console. */
export const MEMBER_EVENTS = {
  member_added: event('member', ANYONE, 'A member was added.', member),
  member_invited: event(
    'member',
    ANYONE,
    'An address was invited to the organization. `replaces`: the previous invitation of the address.',
    { ...invitation, expires_at: DateTime, replaces: Nullable(Uuid) },
  ),
  member_invitation_revoked: event('member', ANYONE, 'An invitation was revoked.', invitation),
  member_changed: event('member', ANYONE, 'The role of a member or its limits were changed.', {
    ...member,
    previous_role: text,
    previous_labels: StringMap(),
  }),
  member_removed: event(
    'member',
    ANYONE,
    'A member was removed, and its sessions and personal tokens ended.',
    member,
  ),
  member_account_unlinked: event(
    'member',
    ANYONE,
    'A member was separated from its account of the provider, and its personal tokens ended. The next sign-in with the verified address gets it.',
    member,
  ),
  member_link_created: event('member', ANYONE, 'A link was made that opens one session of a member.', {
    ...member,
    expires_at: DateTime,
  }),
  member_passkey_added: event('member', ['user'], 'A member added a passkey.', passkey),
  member_passkey_renamed: event('member', ['user'], 'A member gave a passkey another name.', {
    ...passkey,
    previous_name: text,
  }),
  member_passkey_removed: event(
    'member',
    ['user', 'system'],
    'A member or the operator removed a passkey, and the sessions that it opened ended.',
    passkey,
  ),
  member_session_opened: event(
    'member',
    ['user'],
    'A member signed in to the console: by a link of the operator, by a passkey, by the provider, or by a switch from another organization.',
    {
      ...memberSession,
      method: Words(['link', 'passkey', 'provider', 'switch']),
      passkey_id: Type.Optional(Uuid),
      expires_at: DateTime,
    },
  ),
  member_session_ended: event(
    'member',
    ['user'],
    'A session of a member ended. `signed_out`: by the member. `provider`: by the back channel. `switched`: by a switch to another organization. `replaced`: by a later sign-in, as the oldest one. A session that ends with its member, its passkey or its time has no such event.',
    { ...memberSession, reason },
  ),
};
