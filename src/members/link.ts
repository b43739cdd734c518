import { hashOf } from '../access/key-secret.js';
import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { addMillis, now, shortInstant, type Instant } from '../lib/instant.js';
import { tokenKind } from '../lib/token.js';
import { memberFacts } from './facts.js';
import { lockMemberOrThrow } from './lock-member.js';
import { putLink } from './queries.js';

export const LINK_TOKEN = tokenKind('skl_');
export const DEFAULT_LINK_MINUTES = 60;
export const LONGEST_LINK_MINUTES = 7 * 24 * 60;

/**
 * Makes a link that opens one session of a member, and ends the previous one. The token is returned only here. Throws
 * ApiError when no member has this address.
 */
export async function makeLink(
  pool: Pool,
  orgId: string,
  email: string,
  minutes: number,
  actor: EventActor,
): Promise<{ token: string; expiresAt: Instant }> {
  const token = LINK_TOKEN.make();
  const at = now();
  const expiresAt = addMillis(at, minutes * 60_000);
  return inTransaction(pool, async (tx) => {
    const { member } = await lockMemberOrThrow(tx, orgId, { email });
    await putLink(tx, {
      org_id: orgId,
      member_id: member.id,
      hash: hashOf(token),
      created_at: at,
      expires_at: expiresAt,
    });
    await recordEvent(tx, {
      orgId,
      type: 'member_link_created',
      actor,
      resourceId: member.id,
      at,
      payload: { ...memberFacts(member), expires_at: shortInstant(expiresAt) },
    });
    return { token, expiresAt };
  });
}
