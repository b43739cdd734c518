import type { Changes } from '../db/changes.js';
import type { Sql } from '../db/pool.js';
import { CredentialCache } from './credential-cache.js';
import { findKeys } from './key-lookup.js';
import type { SecretRow } from './key-queries.js';
import { isWellFormedKey } from './key-secret.js';

export class KeyCache extends CredentialCache<SecretRow> {
  constructor(sql: Sql, changes: Changes) {
    super(
      {
        find: (secrets) => findKeys(sql, secrets),
        isWellFormed: isWellFormedKey,
        channels: ['key'],
      },
      changes,
    );
  }
}
