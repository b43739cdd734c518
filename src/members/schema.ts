import { Type, type Static } from 'typebox';
import { DateTime, Field, Named, Nullable, PageOf, Uuid } from '../http/schema.js';
import { OrgRole } from '../orgs/schema.js';

export const OrgMemberResponse = Named(
  'OrgMemberResponse',
  {
    id: Field(Uuid, 'The id of the membership.'),
    user_id: Field(Uuid, 'The id of the person.'),
    email: Type.String({ description: 'The email address of the person.' }),
    role: OrgRole,
    display_name: Type.Optional(Nullable(Type.String({ description: 'The name of the person, if known.' }))),
    avatar_url: Type.Optional(
      Nullable(Type.String({ description: 'The address of a picture of the person, if known.' })),
    ),
    joined_at: Field(DateTime, 'The time at which the person became a member.'),
  },
  'A person who belongs to the organization.',
);
export type OrgMemberResponse = Static<typeof OrgMemberResponse>;

export const PaginatedMemberResponse = PageOf('PaginatedMemberResponse', OrgMemberResponse);
