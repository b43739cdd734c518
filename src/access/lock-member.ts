import type { Transaction } from '../db/transaction.js';
import type { Instant } from '../lib/instant.js';
import { callerOfHolder } from './holder.js';
import { findMemberSessions, ifStillOpen, type MemberSessionRow } from './member-session.js';
import { requireScope } from './required-scope.js';
import type { RouteScope } from './scopes.js';
import { invalidSession } from './session-cookie.js';

/**
 * The rights of the member stay as they are until the transaction ends. `no key update`: no other transaction with the
 * same lock runs meanwhile.
 */
export async function lockMemberRow(
  tx: Transaction,
  orgId: string,
  id: string,
  strength: 'share' | 'no key update' = 'share',
): Promise<void> {
  await tx.query(`select from org_members where org_id = $1 and id = $2 for ${strength}`, [orgId, id]);
}

/**
 * Locks the member of a session against changes, and returns the session with its present rights. Throws ApiError when
 * it has ended, or when the present role lacks the scope.
 */
export async function lockMemberAccess(
  tx: Transaction,
  { org_id, member_id, session_hash }: MemberSessionRow,
  scope: RouteScope,
  at: Instant,
): Promise<MemberSessionRow> {
  await lockMemberRow(tx, org_id, member_id);
  const [session] = await findMemberSessions(tx, [session_hash]);
  const present = ifStillOpen(session, at);
  if (!present) throw invalidSession();
  requireScope(callerOfHolder(present), scope);
  return present;
}
