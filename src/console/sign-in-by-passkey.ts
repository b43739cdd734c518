import type { Caller } from '../access/caller.js';
import { callerOfHolder } from '../access/holder.js';
import { hashOf } from '../access/key-secret.js';
import type { RelyingParty } from '../config/passkey-settings.js';
import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { ApiError } from '../http/errors.js';
import { takeChallenge } from '../people/passkeys/challenge-queries.js';
import { getSigner, usePasskey } from '../people/passkeys/queries.js';
import type { AssertRequest } from '../people/passkeys/schema.js';
import { memberIdOf } from '../people/passkeys/user-handle.js';
import { PasskeyRefused, verifyAssertion } from '../people/passkeys/verify.js';
import { openMemberSession, type OpenedSession } from './open-member-session.js';

/**
 * Opens a session of the member whose passkey signed the challenge of the browser. `token`: of its cookie. With a
 * provider, a member with an account there signs in only by it. Throws the same ApiError for each refusal.
 */
export async function signInByPasskey(
  { pool, now, log, settings }: Pick<Context, 'pool' | 'now' | 'log' | 'settings'>,
  token: string | undefined,
  answer: AssertRequest,
  { party, requestId }: { party: RelyingParty; requestId: string },
): Promise<{ caller: Caller; session: OpenedSession }> {
  try {
    const hash = token === undefined ? undefined : hashOf(token);
    // In a transaction of its own: a refused answer uses the challenge up.
    const challenge = hash && (await takeChallenge(pool, hash, 'sign_in', now()));
    if (!challenge) throw new PasskeyRefused('the browser has no challenge, or it was used or has expired');
    const memberId = memberIdOf(answer.user_handle);
    const credentialId = Buffer.from(answer.credential_id, 'base64url');
    const signer = memberId === undefined ? undefined : await getSigner(pool, { credentialId, memberId });
    if (!signer) throw new PasskeyRefused('no member has the passkey');
    const next = await verifyAssertion(answer, signer, { challenge, party });
    const locally = settings.provider !== null;
    return await inTransaction(pool, async (tx) => {
      const at = now();
      const member = await usePasskey(tx, signer, { next, at, locally });
      if (!member) {
        throw new PasskeyRefused('the passkey was used meanwhile, or the provider signs its member in');
      }
      const session = await openMemberSession(tx, member, { at, method: 'passkey', passkeyId: signer.id });
      return { caller: callerOfHolder(session.holder), session };
    });
  } catch (error) {
    if (!(error instanceof PasskeyRefused)) throw error;
    log.warn({ err: error, request_id: requestId }, 'a sign-in with a passkey was refused');
    throw new ApiError('invalid_passkey');
  }
}
