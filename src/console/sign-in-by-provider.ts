import type { ProviderSettings } from '../config/provider-settings.js';
import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { findMembership } from '../people/find-membership.js';
import type { Identity } from '../people/identity.js';
import { SignInRefused } from '../people/refused.js';
import { openMemberSession, type OpenedSession } from './open-member-session.js';

/** Opens a session of the person. Throws SignInRefused for a person without a membership. */
export async function signInByProvider(
  { pool, now, keyring }: Pick<Context, 'pool' | 'now' | 'keyring'>,
  settings: ProviderSettings,
  identity: Identity,
  invitation: string | undefined,
): Promise<OpenedSession> {
  const { sid, idToken } = identity;
  const opened = await inTransaction(pool, async (tx) => {
    const at = now();
    const found = await findMembership(tx, identity, settings, { at, invitation });
    if (found instanceof SignInRefused) return found;
    const { personId, membership } = found;
    const sealed = idToken === null ? null : keyring().seal(idToken, sealedFor(personId));
    const account = { person_id: personId, sid, sealed };
    return openMemberSession(tx, membership, { at, method: 'provider', account });
  });
  if (opened instanceof SignInRefused) throw opened;
  return opened;
}

/** Binds the sealed ID token to its account. */
export function sealedFor(personId: string): string {
  return `id token of ${personId}`;
}
