import { Type, type Static } from 'typebox';
import { DateTime, Named, Uuid, Words } from '../http/schema.js';

export const ORG_ROLES = ['owner', 'admin', 'member', 'viewer'] as const;

export const OrgRole = Words([...ORG_ROLES], { title: 'OrgRole' });
export type OrgRole = Static<typeof OrgRole>;

export const OrgWithRole = Named('OrgWithRole', {
  id: Uuid,
  name: Type.String(),
  slug: Type.String(),
  mfa_required: Type.Boolean({ description: 'False: nobody logs in here.' }),
  role: OrgRole,
  created_at: DateTime,
  updated_at: DateTime,
});
