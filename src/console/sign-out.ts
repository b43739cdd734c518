import type { Caller } from '../access/caller.js';
import type { Session } from '../access/session-cookie.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { inTransaction, type Transaction } from '../db/transaction.js';
import { memberFacts } from '../members/facts.js';
import { deleteSession, takeMemberSession } from './queries.js';
import { sealedFor } from './sign-in-by-provider.js';

/**
 * Ends the session. Returns the ID token of a sign-in by the provider, for the sign-out there; null: it is not known.
 * Undefined: a key or a link opened the session.
 */
export async function signOut(
  ctx: Pick<Context, 'pool' | 'now' | 'keyring'>,
  caller: Caller,
  session: Session,
): Promise<string | null | undefined> {
  return inTransaction(ctx.pool, async (tx) => {
    if (caller.member) return signOutMember(tx, ctx, caller, session);
    await signOutKey(tx, ctx, caller, session);
    return undefined;
  });
}

async function signOutMember(
  tx: Transaction,
  { now, keyring }: Pick<Context, 'now' | 'keyring'>,
  { orgId, actor, member }: Caller,
  { hash }: Session,
): Promise<string | null | undefined> {
  const ended = await takeMemberSession(tx, orgId, hash);
  if (!ended || !member) return undefined;
  await recordEvent(tx, {
    orgId,
    type: 'member_session_ended',
    actor,
    resourceId: member.member_id,
    at: now(),
    payload: {
      session_id: ended.id,
      ...memberFacts({ ...member, id: member.member_id }),
      reason: 'signed_out',
    },
  });
  if (ended.person_id === null) return undefined;
  return (ended.sealed && keyring().open(ended.sealed, sealedFor(ended.person_id))) ?? null;
}

async function signOutKey(
  tx: Transaction,
  { now }: Pick<Context, 'now'>,
  { orgId, actor, key }: Caller,
  { hash }: Session,
): Promise<void> {
  const id = await deleteSession(tx, orgId, hash);
  if (id === undefined || !key) return;
  const { id: api_key_id, name, prefix } = key;
  await recordEvent(tx, {
    orgId,
    type: 'console_session_ended',
    actor,
    resourceId: api_key_id,
    at: now(),
    payload: { session_id: id, api_key_id, name, prefix, reason: 'signed_out' },
  });
}
