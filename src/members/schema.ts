import { Type, type Static } from 'typebox';
import { DateTime, Named, Nullable, PageOf, Uuid } from '../http/schema.js';
import { OrgRole } from '../orgs/schema.js';

export const OrgMemberResponse = Named('OrgMemberResponse', {
  id: Uuid,
  user_id: Uuid,
  email: Type.String(),
  role: OrgRole,
  display_name: Type.Optional(Nullable(Type.String())),
  avatar_url: Type.Optional(Nullable(Type.String())),
  joined_at: DateTime,
});
export type OrgMemberResponse = Static<typeof OrgMemberResponse>;

export const PaginatedMemberResponse = PageOf('PaginatedMemberResponse', OrgMemberResponse);
