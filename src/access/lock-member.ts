import type { Transaction } from '../db/transaction.js';
import type { Instant } from '../lib/instant.js';
import { findMemberSessions, ifStillOpen, type MemberSessionRow } from './member-session.js';
import { invalidSession } from './session-cookie.js';

/**
 * Locks the member of a session against changes, and returns the session with its present rights. Throws ApiError when
 * it has ended.
 */
export async function lockMemberAccess(
  tx: Transaction,
  { org_id, member_id, session_hash }: MemberSessionRow,
  at: Instant,
): Promise<MemberSessionRow> {
  await tx.query('select from org_members where org_id = $1 and id = $2 for share', [org_id, member_id]);
  const [session] = await findMemberSessions(tx, [session_hash]);
  const present = ifStillOpen(session, at);
  if (!present) throw invalidSession();
  return present;
}
