import type { Access } from './access.js';
import type { SecretRow, TokenMember } from './key-queries.js';
import { scopesOfRole } from './roles.js';
import { covers, type Scope } from './scopes.js';

/** A personal token opens no more than its member may at the moment, and no more than it got. */
export function accessOfToken({ scopes, expires_at }: SecretRow, { role, labels }: TokenMember): Access {
  const held = commonScopes(scopes, scopesOfRole(role, labels));
  return { scopes: held, labels, cidrs: [], expiresAt: expires_at, replaced: false };
}

/** The scopes that both sets cover. */
export function commonScopes(some: readonly Scope[], others: readonly Scope[]): Scope[] {
  const common = [
    ...some.filter((scope) => covers(others, scope)),
    ...others.filter((scope) => covers(some, scope)),
  ];
  return [...new Set(common)];
}
