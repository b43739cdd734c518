import { redactEmail } from '../audit/events/redact-email.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Instant } from '../lib/instant.js';
import type { Access } from './access.js';
import type { Caller } from './caller.js';
import { refusalReasonOf } from './key-lookup.js';
import { accessOf, type SecretRow } from './key-queries.js';
import type { MemberSessionRow } from './member-session.js';
import { accessOfToken } from './personal-token.js';
import { scopesOfRole } from './roles.js';

/** The holder of a credential: an API key, which may be the personal token of a member, or a member by a session. */
export type Holder = SecretRow | MemberSessionRow;

export function isMember(holder: Holder): holder is MemberSessionRow {
  return 'idle_at' in holder;
}

/** Undefined if the holder is accepted. The look-up of a session leaves out ended ones. */
export function refusalOf(holder: Holder, at: Instant): 'revoked' | 'expired' | undefined {
  return isMember(holder) ? undefined : refusalReasonOf(holder, at);
}

export function accessOfHolder(holder: Holder): Access {
  if (isMember(holder)) return accessOfMember(holder);
  return holder.member ? accessOfToken(holder, holder.member) : accessOf(holder);
}

export function callerOfHolder(holder: Holder): Caller {
  const access = accessOfHolder(holder);
  if (!isMember(holder)) {
    const actor = holder.member
      ? memberActor(holder.member)
      : ({ kind: 'api_key', api_key_id: holder.id, name: holder.name } as const);
    return { orgId: holder.org_id, actor, access, key: holder };
  }
  return { orgId: holder.org_id, actor: memberActor(holder), access, member: holder };
}

/** The audit trail shows no address: a person without a name is labelled with the redacted one. */
export function memberActor({
  user_id,
  email,
  display_name,
}: Pick<MemberSessionRow, 'user_id' | 'email' | 'display_name'>): EventActor {
  const redacted = redactEmail(email);
  return { kind: 'user', user_id, label: display_name ?? redacted, redacted_email: redacted };
}

export function accessOfMember({ role, labels }: Pick<MemberSessionRow, 'role' | 'labels'>): Access {
  return { scopes: scopesOfRole(role, labels), labels, cidrs: [], expiresAt: null, replaced: false };
}
