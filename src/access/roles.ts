import { covers, type Scope } from './scopes.js';

interface RoleDefinition {
  /** The sentence of docs/roles.md. */
  summary: string;
  scopes: readonly Scope[];
}

const DEVELOPER: readonly Scope[] = ['sandboxes:write', 'sandboxes:exec', 'volumes:write'];

/** The roles of members, each a set of scopes. `write` includes `read` of the same kind. */
export const ROLES = {
  owner: {
    summary: 'Everything. Only owners and the operator add, change and remove owners.',
    scopes: ['org:admin'],
  },
  admin: { summary: 'Everything but owners.', scopes: ['org:admin'] },
  developer: { summary: 'Sandboxes, their commands and files, and volumes.', scopes: DEVELOPER },
  member: { summary: 'The same as `developer`, by the name of the hosted service.', scopes: DEVELOPER },
  viewer: {
    summary: 'Reads sandboxes, their logs, and volumes.',
    scopes: ['sandboxes:read', 'volumes:read'],
  },
  finance: { summary: 'Reads usage, cost and quotas.', scopes: ['billing:read'] },
  auditor: { summary: 'Reads the audit trail.', scopes: ['events:read'] },
} as const satisfies Record<string, RoleDefinition>;
export type Role = keyof typeof ROLES;

export const ROLE_NAMES = Object.keys(ROLES) as Role[];

/** Labels distinguish sandboxes and nothing else. */
const NARROWED: readonly Scope[] = ['sandboxes:write', 'sandboxes:exec'];

/** The scopes of a role that is limited to labels. Empty: the role cannot be. */
export function narrowedScopes(role: Role): readonly Scope[] {
  return ROLES[role].scopes.filter((scope) => covers(NARROWED, scope));
}

export function scopesOfRole(role: Role, labels: Readonly<Record<string, string>>): readonly Scope[] {
  return Object.keys(labels).length === 0 ? ROLES[role].scopes : narrowedScopes(role);
}
