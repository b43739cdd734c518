import { Type } from 'typebox';
import { DateTime, Nullable, StringMap, Uuid } from '../../http/schema.js';
import { CALLER, event, SYSTEM } from './catalogue-entry.js';

const text = Type.String();
const count = Type.Integer({ minimum: 0 });
const reason = Type.String({ description: 'The reason, as a code.' });
const time = Nullable(DateTime);
const ANYONE = ['api_key', 'user', 'system'] as const;

const key = { api_key_id: Uuid, name: text, prefix: text };
/** The member of a personal token. */
const ofMember = { member_id: Type.Optional(Uuid) };
const consoleSession = { session_id: Uuid, ...key };

/** API keys and personal tokens, and the sessions of the console that they open. */
export const KEY_EVENTS = {
  api_key_created: event(
    'api_key',
    ANYONE,
    'An API key was created. `member_id`: the member whose personal token it is.',
    {
      ...key,
      ...ofMember,
      scopes: Type.Array(text),
      labels: StringMap(),
      cidrs: Type.Array(text),
      expires_at: time,
    },
  ),
  api_key_first_used: event('api_key', ['api_key'], 'An API key was used for the first time.', key),
  api_key_rotated: event(
    'api_key',
    ANYONE,
    'An API key got a new secret. The previous secret is valid until `previous_until`.',
    { ...key, previous_prefix: text, previous_until: DateTime },
  ),
  api_key_expired: event('api_key', SYSTEM, 'An API key expired.', {
    ...key,
    expires_at: DateTime,
  }),
  api_key_refused_often: event(
    'api_key',
    SYSTEM,
    'An API key was refused often within a minute, for these reasons. Written at most once an hour for each key.',
    { ...key, refusals: count, reasons: Type.Array(reason) },
  ),
  api_key_revoked: event(
    'api_key',
    ANYONE,
    'An API key was revoked. A personal token that ends with its member has no such event.',
    {
      ...key,
      ...ofMember,
    },
  ),
  console_session_opened: event('api_key', CALLER, 'A caller signed in to the console with an API key.', {
    ...consoleSession,
    expires_at: DateTime,
  }),
  console_session_ended: event(
    'api_key',
    CALLER,
    'A caller signed out of the console, or a later sign-in with the same key ended the oldest session (`replaced`). A session that ends with its key or its time has no such event.',
    { ...consoleSession, reason },
  ),
};
