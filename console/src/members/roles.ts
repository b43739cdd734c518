import type { OrgRole } from '../lib/api-types';

/** The rights of each role, in short: docs/roles.md has the scopes. */
export const ROLES: Record<OrgRole, string> = {
  owner: 'Everything, with the owners',
  admin: 'Everything but owners',
  developer: 'Sandboxes, commands, files, volumes',
  member: 'As a developer',
  viewer: 'Reads sandboxes and volumes',
  finance: 'Reads usage and quotas',
  auditor: 'Reads the audit trail',
};

export const ROLE_NAMES = Object.keys(ROLES) as OrgRole[];

/** Only sandboxes have labels. */
export const NARROWABLE: readonly OrgRole[] = ['developer', 'member', 'viewer'];
