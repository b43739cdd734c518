import type { Changes } from '../db/changes.js';
import type { Sql } from '../db/pool.js';
import { CredentialCache } from './credential-cache.js';
import { findKeys } from './key-lookup.js';
import type { SecretRow } from './key-queries.js';
import { isWellFormedKey } from './key-secret.js';

/** An accepted key, or by an organization alone another credential of it. */
export type TokenPlace = Pick<SecretRow, 'org_id' | 'member_id'> & { id: string | null };

export interface Organizations {
  /**
   * The key as which an accepted key acts in the organization of this slug. Undefined: there is no such organization,
   * or the key opens nothing of it.
   */
  keyIn(key: SecretRow, slug: string): Promise<SecretRow | undefined>;
  /** The slugs of the organizations that a credential opens, a bounded number. */
  slugsOf(of: TokenPlace): Promise<string[]>;
}

export async function isSlugOf(sql: Sql, orgId: string, slug: string): Promise<boolean> {
  const { rowCount } = await sql.query('select from orgs where id = $1 and slug = $2', [orgId, slug]);
  return rowCount === 1;
}

/** Keys by their secret and the slug of an organization. Neither has a space. */
export class OrganizationKeys extends CredentialCache<SecretRow> {
  constructor(sql: Sql, changes: Changes, keyIn: Organizations['keyIn']) {
    super(
      {
        async find(texts) {
          const parts = texts.map((text) => text.split(' ') as [secret: string, slug: string]);
          const keys = await findKeys(
            sql,
            parts.map(([secret]) => secret),
          );
          const found: (SecretRow | undefined)[] = [];
          // One after the other: a look-up may write, and has its connection for that time.
          for (const [index, key] of keys.entries()) found.push(key && (await keyIn(key, parts[index]![1])));
          return found;
        },
        isWellFormed: (text) => isWellFormedKey(text.split(' ')[0]!),
        channels: ['key'],
      },
      changes,
    );
  }
}
