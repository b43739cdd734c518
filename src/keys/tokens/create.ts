import { accessOfMember, memberActor } from '../../access/holder.js';
import type { MemberSessionRow } from '../../access/member-session.js';
import { covers, type Scope } from '../../access/scopes.js';
import type { Sql } from '../../db/pool.js';
import type { Transaction } from '../../db/transaction.js';
import { ApiError } from '../../http/errors.js';
import { addMillis, type Instant } from '../../lib/instant.js';
import { findUnstorable } from '../../lib/storable-text.js';
import { addKey } from '../create.js';
import { countTokens, type TokenRow } from './queries.js';

const DAY_MS = 24 * 60 * 60_000;
export const MOST_TOKENS = 50;
export const DEFAULT_TOKEN_DAYS = 30;
export const LONGEST_TOKEN_DAYS = 366;
export const LONGEST_TOKEN_NAME = 200;

export type TokenOwner = Pick<
  MemberSessionRow,
  'org_id' | 'member_id' | 'user_id' | 'email' | 'display_name' | 'role' | 'labels'
>;

export interface TokenRequest {
  name: string;
  /** Undefined: the present ones of the member. */
  scopes: readonly Scope[] | undefined;
  days: number;
}

/**
 * Makes a personal token of a member whose row the transaction holds, so that a change of its rights comes later. The
 * secret is returned only here. Throws ApiError.
 */
export async function createToken(
  tx: Transaction,
  owner: TokenOwner,
  { name, scopes, days }: TokenRequest,
  at: Instant,
): Promise<{ token: TokenRow; secret: string }> {
  const { org_id: orgId, member_id: memberId, email } = owner;
  checkName(name);
  const held = accessOfMember(owner).scopes;
  const missing = scopes?.find((scope) => !covers(held, scope));
  if (missing !== undefined) {
    throw new ApiError('insufficient_scope', `your role "${owner.role}" does not have the scope ${missing}`, {
      required_scope: missing,
      scopes: [...held],
    });
  }
  await checkTokenCount(tx, orgId, memberId, at);
  const { row, key } = await addKey(tx, {
    orgId,
    name,
    access: {
      scopes: [...new Set(scopes ?? held)],
      labels: {},
      cidrs: [],
      expiresAt: addMillis(at, days * DAY_MS),
      replaced: false,
    },
    actor: memberActor(owner),
    at,
    memberId,
  });
  return { token: { ...row, member_id: memberId, email }, secret: key };
}

/** Throws ApiError when the member has as many tokens as it may. */
export async function checkTokenCount(sql: Sql, orgId: string, memberId: string, at: Instant): Promise<void> {
  if ((await countTokens(sql, orgId, memberId, at)) < MOST_TOKENS) return;
  throw new ApiError('quota_exceeded', `a member has at most ${MOST_TOKENS} personal tokens: revoke one`, {
    limit: MOST_TOKENS,
  });
}

function checkName(name: string): void {
  if (name.trim() !== '' && name.length <= LONGEST_TOKEN_NAME && findUnstorable(name) === undefined) return;
  const message = `the name of a token must have 1 to ${LONGEST_TOKEN_NAME} characters`;
  throw new ApiError('invalid_request', message, { field: 'name' });
}
