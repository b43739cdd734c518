import { callerOfHolder } from '../../access/holder.js';
import { findMemberSessions, ifStillOpen, type MemberSessionRow } from '../../access/member-session.js';
import { invalidSession } from '../../access/session-cookie.js';
import { recordEvent } from '../../audit/events/record.js';
import type { RelyingParty } from '../../config/passkey-settings.js';
import type { Context } from '../../context.js';
import { violatedConstraint, type Sql } from '../../db/pool.js';
import { inTransaction, type Transaction } from '../../db/transaction.js';
import { ApiError } from '../../http/errors.js';
import type { Instant } from '../../lib/instant.js';
import { newId } from '../../lib/uuid.js';
import { memberFacts } from '../../members/facts.js';
import { getOrg } from '../../orgs/queries.js';
import { CHALLENGE_MS, makeChallenge } from './challenge.js';
import { takeChallenge } from './challenge-queries.js';
import { checkPasskeyName } from './name.js';
import { getPasskeys, hasAccount, insertPasskey, lockPasskeys, type PasskeyRow } from './queries.js';
import type { CreationOptions, RegisterRequest } from './schema.js';
import { userHandleOf } from './user-handle.js';
import { ALGORITHMS, PasskeyRefused, verifyRegistration } from './verify.js';

export const MOST_PASSKEYS = 10;

type Deps = Pick<Context, 'pool' | 'now' | 'log'> & {
  /** Connections that are bound to no organization. */
  unbound: Context['pool'];
  settings: Pick<Context['settings'], 'provider'>;
};

/** Returns the options for the browser. Throws ApiError when the member cannot have another passkey. */
export async function beginRegistration(
  { pool, unbound, now, settings }: Deps,
  member: MemberSessionRow,
  party: RelyingParty,
): Promise<CreationOptions> {
  const { org_id: orgId, member_id: memberId, session_hash: hash, email, display_name } = member;
  const passkeys = await getPasskeys(pool, orgId, memberId);
  await refuseMore(pool, member, { count: passkeys.length, hasProvider: settings.provider !== null });
  const org = await getOrg(pool, orgId);
  const source = hash.toString('hex');
  const challenge = await makeChallenge({ pool: unbound, now }, { hash, purpose: 'register', source });
  return {
    challenge: challenge.toString('base64url'),
    rp: { id: party.id, name: 'Sandkeep' },
    // Browsers list the passkeys of several organizations by these names.
    user: {
      id: userHandleOf(memberId),
      name: `${email} (${org?.name ?? ''})`,
      displayName: display_name ?? email,
    },
    pubKeyCredParams: ALGORITHMS.map((alg) => ({ type: 'public-key', alg })),
    timeout: CHALLENGE_MS,
    attestation: 'none',
    excludeCredentials: passkeys.map(({ credential_id, transports }) => ({
      type: 'public-key',
      id: credential_id.toString('base64url'),
      transports,
    })),
    authenticatorSelection: {
      residentKey: 'required',
      requireResidentKey: true,
      userVerification: 'required',
    },
  };
}

/** Stores the passkey that answers the challenge of the session. Throws ApiError. */
export async function registerPasskey(
  { pool, unbound, now, log, settings }: Deps,
  member: MemberSessionRow,
  answer: RegisterRequest,
  party: RelyingParty,
): Promise<PasskeyRow> {
  const name = checkPasskeyName(answer.name);
  const challenge = await takeChallenge(unbound, member.session_hash, 'register', now());
  if (!challenge) {
    throw new ApiError('passkey_refused', 'the challenge is unknown, used or expired: begin again');
  }
  const verified = await verifyRegistration(answer, { challenge, party }).catch((error: unknown) => {
    if (!(error instanceof PasskeyRefused)) throw error;
    log.warn({ err: error, member_id: member.member_id }, 'a new passkey was refused');
    throw new ApiError('passkey_refused');
  });
  const { org_id: orgId, member_id: memberId } = member;
  try {
    return await inTransaction(pool, async (tx) => {
      const at = now();
      const { actor } = callerOfHolder(await lockSession(tx, member, at));
      const { length: count } = await getPasskeys(tx, orgId, memberId);
      await refuseMore(tx, member, { count, hasProvider: settings.provider !== null });
      const passkey = {
        id: newId(),
        name,
        credential_id: verified.credentialId,
        transports: answer.transports,
        created_at: at,
      };
      await insertPasskey(tx, orgId, memberId, {
        ...passkey,
        public_key: verified.publicKey,
        counter: verified.counter,
      });
      await recordEvent(tx, {
        orgId,
        type: 'member_passkey_added',
        actor,
        resourceId: memberId,
        at,
        payload: { ...memberFacts({ ...member, id: memberId }), passkey_id: passkey.id, name },
      });
      return { ...passkey, used_at: null };
    });
  } catch (error) {
    if (violatedConstraint(error) !== 'member_passkeys_credential_id_key') throw error;
    throw new ApiError('passkey_refused', 'the passkey is registered already', null, { cause: error });
  }
}

/** Locks the member against other changes of its passkeys. Throws ApiError when the session has ended. */
export async function lockSession(
  tx: Transaction,
  { org_id, member_id, session_hash }: MemberSessionRow,
  at: Instant,
): Promise<MemberSessionRow> {
  await lockPasskeys(tx, org_id, member_id);
  const [session] = await findMemberSessions(tx, [session_hash]);
  const present = ifStillOpen(session, at);
  if (!present) throw invalidSession();
  return present;
}

async function refuseMore(
  sql: Sql,
  { org_id, member_id }: MemberSessionRow,
  { count, hasProvider }: { count: number; hasProvider: boolean },
): Promise<void> {
  if (hasProvider && (await hasAccount(sql, org_id, member_id))) {
    throw new ApiError(
      'passkeys_unavailable',
      'You sign in with an account of the provider, which alone decides about your sign-ins.',
    );
  }
  if (count < MOST_PASSKEYS) return;
  throw new ApiError(
    'quota_exceeded',
    `a member has at most ${MOST_PASSKEYS} passkeys: remove one that you no longer use`,
    { limit: MOST_PASSKEYS, used: count },
  );
}
