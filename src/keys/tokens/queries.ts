import { K_COLUMNS, type KeyRow } from '../../access/key-queries.js';
import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';

export interface TokenRow extends KeyRow {
  member_id: string;
  /** The address of the member. */
  email: string;
}

/** The valid tokens of a member, oldest first, at most `limit`, after `after` (created_at, id). Null: of every one. */
export async function pageTokens(
  sql: Sql,
  orgId: string,
  {
    memberId,
    at,
    after,
    limit,
  }: {
    memberId: string | null;
    at: Instant;
    after: readonly [Instant, string] | undefined;
    limit: number;
  },
): Promise<TokenRow[]> {
  const { rows } = await sql.query<TokenRow & Record<string, unknown>>(
    `select ${K_COLUMNS}, m.email
     from api_keys k
     join org_members m on m.org_id = k.org_id and m.id = k.member_id
     where k.org_id = $1 and k.member_id is not null and ($2::uuid is null or k.member_id = $2)
       and k.revoked_at is null and k.expires_at > $3
       and ($4::timestamptz is null or (k.created_at, k.id) > ($4, $5::uuid))
     order by k.created_at, k.id
     limit $6`,
    [orgId, memberId, at, after?.[0] ?? null, after?.[1] ?? null, limit],
  );
  return rows;
}

/** A token that was not revoked. `memberId`: of this member; null: of any. */
export async function lockToken(
  sql: Sql,
  orgId: string,
  id: string,
  memberId: string | null,
): Promise<KeyRow | undefined> {
  const { rows } = await sql.query<KeyRow & Record<string, unknown>>(
    `select ${K_COLUMNS} from api_keys k
     where k.org_id = $1 and k.id = $2 and k.member_id is not null and k.revoked_at is null
       and ($3::uuid is null or k.member_id = $3)
     for update`,
    [orgId, id, memberId],
  );
  return rows[0];
}

/** The valid tokens of a member. */
export async function countTokens(sql: Sql, orgId: string, memberId: string, at: Instant): Promise<number> {
  const { rows } = await sql.query<{ count: number }>(
    `select count(*)::int as count from api_keys
     where org_id = $1 and member_id = $2 and revoked_at is null and expires_at > $3`,
    [orgId, memberId, at],
  );
  return rows[0]!.count;
}
