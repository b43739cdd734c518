import { createHash, randomBytes } from 'node:crypto';
import type { Context } from '../../context.js';
import { addMillis } from '../../lib/instant.js';
import { putChallenge, type ChallengeRow } from './challenge-queries.js';

const BYTES = 32;
/** How long a person may take with the authenticator. */
export const CHALLENGE_MS = 5 * 60_000;
/**
 * Anybody can ask for challenges of sign-ins. Beyond a limit the oldest challenge goes, and its person has to begin
 * again. A network may have many people.
 */
export const MOST_CHALLENGES = { total: 10_000, each: 100 };

/**
 * Stores a new challenge for the browser that has a token. A later one replaces it. `pool`: not that of a request,
 * which cannot reach the table.
 */
export async function makeChallenge(
  { pool, now }: Pick<Context, 'pool' | 'now'>,
  { hash, purpose, source }: { hash: Buffer; purpose: ChallengeRow['purpose']; source: string },
): Promise<Buffer> {
  const at = now();
  const challenge = randomBytes(BYTES);
  await putChallenge(
    pool,
    {
      hash,
      purpose,
      source: createHash('sha256').update(`${purpose} ${source}`).digest(),
      challenge,
      created_at: at,
      expires_at: addMillis(at, CHALLENGE_MS),
    },
    MOST_CHALLENGES,
  );
  return challenge;
}
