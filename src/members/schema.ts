import { Type, type Static } from 'typebox';
import { MOST_ACCESS_LABELS } from '../access/access.js';
import { EventActor } from '../audit/events/schema.js';
import { labelsForm } from '../http/labels-form.js';
import { DateTime, Field, Int32, Named, Nullable, PageOf, StringMap, Uuid } from '../http/schema.js';
import { OrgRole } from '../orgs/schema.js';
import { DEFAULT_INVITATION_HOURS, LONGEST_INVITATION_HOURS } from './invite.js';

const labels = {
  description: 'The labels that a sandbox must have for the member to see it. Empty: every sandbox.',
};

export const OrgMemberResponse = Named(
  'OrgMemberResponse',
  {
    id: Field(Uuid, 'The id of the membership.'),
    user_id: Field(Uuid, 'The id of the person.'),
    email: Type.String({ description: 'The email address of the person.' }),
    role: OrgRole,
    labels: StringMap(labels),
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

export const UpdateMemberRequest = Type.Object(
  {
    role: Type.Optional(OrgRole),
    labels: Type.Optional(StringMap({ ...labelsForm(MOST_ACCESS_LABELS), ...labels })),
  },
  {
    title: 'UpdateMemberRequest',
    description: 'The new role, the new labels, or both.',
    additionalProperties: false,
  },
);

const invitation = {
  id: Field(Uuid, 'The id of the invitation.'),
  email: Type.String({ description: 'The invited email address.' }),
  role: Field(OrgRole, 'The role of the member to be.'),
  labels: StringMap(labels),
  created_at: Field(DateTime, 'The time of the invitation.'),
  created_by: EventActor,
  expires_at: Field(DateTime, 'The time from which the link is refused.'),
};

export const InvitationResponse = Named('InvitationResponse', invitation, 'An open invitation.');
export type InvitationResponse = Static<typeof InvitationResponse>;

export const PaginatedInvitationResponse = PageOf('PaginatedInvitationResponse', InvitationResponse);

export const InvitationWithLink = Named(
  'InvitationWithLink',
  {
    ...invitation,
    link: Type.String({
      description: 'The link for the invited person. It is shown only now and not stored.',
    }),
  },
  'An invitation with its link.',
);

export const CreateInvitationRequest = Type.Object(
  {
    email: Type.String({ minLength: 1, description: 'The address to invite.' }),
    role: OrgRole,
    labels: Type.Optional(StringMap({ ...labelsForm(MOST_ACCESS_LABELS), ...labels })),
    expires_in_hours: Type.Optional(
      Int32({
        minimum: 1,
        maximum: LONGEST_INVITATION_HOURS,
        default: DEFAULT_INVITATION_HOURS,
        description: 'The hours for which the link works.',
      }),
    ),
  },
  {
    title: 'CreateInvitationRequest',
    description: 'The person to invite, with the role.',
    additionalProperties: false,
  },
);
