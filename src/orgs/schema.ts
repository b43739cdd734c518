import { Type } from 'typebox';
import { ROLE_NAMES } from '../access/roles.js';
import { DateTime, Field, Named, Uuid, Words } from '../http/schema.js';

export const OrgRole = Words(ROLE_NAMES, {
  title: 'OrgRole',
  description: 'The role of a member in the organization. docs/roles.md has the scopes of each.',
});

export const OrgWithRole = Named(
  'OrgWithRole',
  {
    id: Field(Uuid, 'The id of the organization.'),
    name: Type.String({ description: 'The name of the organization.' }),
    slug: Type.String({ description: 'The short name of the organization, unique in the installation.' }),
    mfa_required: Type.Boolean({
      description: 'Always false: a second factor is a matter of the provider of sign-ins.',
    }),
    role: Field(
      OrgRole,
      'The role of the member. Always `owner` for a key, whose scopes say what it may do.',
    ),
    runtime: Type.String({
      description: 'The runtime that new sandboxes get: such as `docker` or `microvm`.',
    }),
    created_at: Field(DateTime, 'The time at which the organization was created.'),
    updated_at: Field(DateTime, 'The time at which the organization last changed.'),
  },
  'The organization of the caller.',
);
