import { memberActor } from '../access/holder.js';
import { hashOf } from '../access/key-secret.js';
import { MEMBER_TOKEN, type MemberSessionRow } from '../access/member-session.js';
import { csrfTokenOf, type Session } from '../access/session-cookie.js';
import { SESSION_IDLE_MS } from '../access/session-uses.js';
import { recordEvent } from '../audit/events/record.js';
import type { Transaction } from '../db/transaction.js';
import { addMillis, microsOf, shortInstant, type Instant } from '../lib/instant.js';
import { newId } from '../lib/uuid.js';
import { memberFacts } from '../members/facts.js';
import type { MemberRow } from '../members/queries.js';
import { deleteOldestOfMember, insertMemberSession, type SessionAccount } from './queries.js';

/** The session of a member ends then, however it is used. */
export const MEMBER_SESSION_MS = 12 * 60 * 60_000;
export const MOST_MEMBER_SESSIONS = 20;

export interface OpenedSession extends Session {
  holder: MemberSessionRow;
  /** Shown only here, to the browser. */
  token: string;
  lifetimeSecs: number;
}

interface Opening {
  at: Instant;
  method: 'link' | 'passkey' | 'provider' | 'switch';
  account?: SessionAccount | null;
  passkeyId?: string;
  /** The absolute end. Default: a whole session from now on. */
  expiresAt?: Instant;
}

/** Opens a session of a member in the transaction of the sign-in. */
export async function openMemberSession(
  tx: Transaction,
  member: MemberRow & { org_id: string },
  { at, method, account = null, passkeyId, expiresAt = addMillis(at, MEMBER_SESSION_MS) }: Opening,
): Promise<OpenedSession> {
  const { org_id: orgId, id: memberId } = member;
  const token = MEMBER_TOKEN.make();
  const hash = hashOf(token);
  const id = newId();
  const idleAt = addMillis(at, SESSION_IDLE_MS);
  const about = { orgId, actor: memberActor(member), resourceId: memberId, at };
  const facts = memberFacts(member);
  for (const oldest of await deleteOldestOfMember(tx, orgId, memberId, { keep: MOST_MEMBER_SESSIONS - 1 })) {
    await recordEvent(tx, {
      ...about,
      type: 'member_session_ended',
      payload: { session_id: oldest, ...facts, reason: 'replaced' },
    });
  }
  await insertMemberSession(tx, {
    org_id: orgId,
    hash,
    id,
    member_id: memberId,
    created_at: at,
    expires_at: expiresAt,
    idle_at: idleAt,
    account,
    passkey_id: passkeyId ?? null,
  });
  await recordEvent(tx, {
    ...about,
    type: 'member_session_opened',
    payload: {
      session_id: id,
      ...facts,
      method,
      ...(passkeyId === undefined ? {} : { passkey_id: passkeyId }),
      expires_at: shortInstant(expiresAt),
    },
  });
  const holder: MemberSessionRow = {
    org_id: orgId,
    session_hash: hash,
    session_expires_at: expiresAt,
    idle_at: idleAt,
    person_id: account?.person_id ?? null,
    member_id: memberId,
    user_id: member.user_id,
    email: member.email,
    display_name: member.display_name,
    role: member.role,
    labels: member.labels,
  };
  const lifetimeSecs = Number((microsOf(expiresAt) - microsOf(at)) / 1_000_000n);
  return { holder, hash, csrfToken: csrfTokenOf(token), expiresAt, token, lifetimeSecs };
}
