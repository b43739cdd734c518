import type { Changes } from '../db/changes.js';
import type { Sql } from '../db/pool.js';
import { CredentialCache } from './credential-cache.js';
import { hashOf } from './key-secret.js';
import { SESSION_TOKEN } from './session-cookie.js';
import { findSessions, type SessionRow } from './session-queries.js';

export class SessionCache extends CredentialCache<SessionRow> {
  constructor(sql: Sql, changes: Changes) {
    super(
      {
        find: (tokens) => findSessions(sql, tokens.map(hashOf)),
        isWellFormed: SESSION_TOKEN.isWellFormed,
        channels: ['key', 'session'],
      },
      changes,
    );
  }
}
