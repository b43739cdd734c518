import { Type, type Static } from 'typebox';
import { DateTime, Field, Named, Uuid, Words } from '../http/schema.js';

export const ORG_ROLES = ['owner', 'admin', 'member', 'viewer'] as const;

export const OrgRole = Words([...ORG_ROLES], {
  title: 'OrgRole',
  description: 'The role of a member in the organization.',
});
export type OrgRole = Static<typeof OrgRole>;

export const OrgWithRole = Named(
  'OrgWithRole',
  {
    id: Field(Uuid, 'The id of the organization.'),
    name: Type.String({ description: 'The name of the organization.' }),
    slug: Type.String({ description: 'The short name of the organization, unique in the installation.' }),
    mfa_required: Type.Boolean({ description: 'Always false, because the service has no logins.' }),
    role: Field(OrgRole, 'Always `owner`. The scopes of the key say what it may do.'),
    runtime: Type.String({
      description: 'The runtime that new sandboxes get: such as `docker` or `microvm`.',
    }),
    created_at: Field(DateTime, 'The time at which the organization was created.'),
    updated_at: Field(DateTime, 'The time at which the organization last changed.'),
  },
  'The organization that a key belongs to.',
);
