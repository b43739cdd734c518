import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';

export interface ChallengeRow {
  hash: Buffer;
  purpose: 'register' | 'sign_in';
  source: Buffer;
  challenge: Buffer;
  created_at: Instant;
  expires_at: Instant;
}

/** Stores a challenge in place of the oldest ones beyond the limits. One token of a browser has one challenge. */
export async function putChallenge(
  sql: Sql,
  row: ChallengeRow,
  { total, each }: { total: number; each: number },
): Promise<void> {
  // Two requests at once would wait for each other's rows. A lock beside an offset would lock the rows before it, too.
  await sql.query(
    `with surplus as (
       delete from passkey_challenges where hash in (
         select hash from passkey_challenges
         where hash <> $1 and hash in (
           (select hash from passkey_challenges where source = $3 order by created_at desc offset $7)
           union all (select hash from passkey_challenges order by created_at desc offset $8))
         for update skip locked))
     insert into passkey_challenges (hash, purpose, source, challenge, created_at, expires_at)
     values ($1, $2, $3, $4, $5, $6)
     on conflict (hash) do update
     set purpose = excluded.purpose, source = excluded.source, challenge = excluded.challenge,
       created_at = excluded.created_at, expires_at = excluded.expires_at`,
    [row.hash, row.purpose, row.source, row.challenge, row.created_at, row.expires_at, each - 1, total - 1],
  );
}

/** Uses a challenge up. Undefined if it is unknown, used or expired. */
export async function takeChallenge(
  sql: Sql,
  hash: Buffer,
  purpose: ChallengeRow['purpose'],
  at: Instant,
): Promise<Buffer | undefined> {
  const { rows } = await sql.query<{ challenge: Buffer }>(
    `delete from passkey_challenges where hash = $1 and purpose = $2 and expires_at > $3 returning challenge`,
    [hash, purpose, at],
  );
  return rows[0]?.challenge;
}

export async function deleteChallenges(sql: Sql, expired: Instant): Promise<void> {
  await sql.query('delete from passkey_challenges where expires_at <= $1', [expired]);
}
