import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { callerOf } from '../access/caller.js';
import { contextOf } from '../access/request-context.js';
import { answers, answersToBody, type App } from '../http/route.js';
import { Field, MessageResponse, PageQuery, Uuid } from '../http/schema.js';
import { changeMember } from './change.js';
import { DEFAULT_INVITATION_HOURS, inviteMember } from './invite.js';
import { listInvitations, listMembers, presentInvitation, presentMember } from './list.js';
import { removeMember } from './remove.js';
import { revokeInvitation } from './revoke-invitation.js';
import {
  CreateInvitationRequest,
  InvitationWithLink,
  OrgMemberResponse,
  PaginatedInvitationResponse,
  PaginatedMemberResponse,
  UpdateMemberRequest,
} from './schema.js';

const common = { tags: ['organization'], scope: 'org:admin' } as const;
const memberParams = Type.Object({ member_id: Field(Uuid, 'The id of the membership.') });
const invitationParams = Type.Object({ invitation_id: Field(Uuid, 'The id of the invitation.') });
const querystring = Type.Object(PageQuery, { additionalProperties: false });

export function memberRoutes(app: App): void {
  app.get(
    '/v1/members',
    {
      schema: {
        ...common,
        operationId: 'list_members',
        summary: 'List the members of the organization, oldest first',
        description: 'Returns one page of the people who belong to the organization, with their roles.',
        querystring,
        response: answers(PaginatedMemberResponse),
      },
    },
    (request) => listMembers(contextOf(request), callerOf(request).orgId, request.query),
  );

  app.patch(
    '/v1/members/:member_id',
    {
      schema: {
        ...common,
        operationId: 'update_member',
        summary: 'Change the role of a member or its labels',
        description:
          'Open sessions of the member have the new rights at once. Only an owner changes owners, and the last owner stays one.',
        params: memberParams,
        body: UpdateMemberRequest,
        response: answersToBody(OrgMemberResponse, 'owner_required', 'member_not_found', 'last_owner'),
      },
    },
    async (request) => {
      const { pool, now } = contextOf(request);
      const caller = callerOf(request);
      const by = { actor: caller.actor, caller, at: now() };
      const name = { id: request.params.member_id };
      return presentMember(await changeMember(pool, caller.orgId, name, request.body, by));
    },
  );

  app.delete(
    '/v1/members/:member_id',
    {
      schema: {
        ...common,
        operationId: 'remove_member',
        summary: 'Remove a member and end its sessions',
        description:
          'Only an owner removes owners, and the last owner stays. Keys that the member created stay, too.',
        params: memberParams,
        response: answersToBody(MessageResponse, 'owner_required', 'member_not_found', 'last_owner'),
      },
    },
    async (request) => {
      const { pool, now } = contextOf(request);
      const caller = callerOf(request);
      const by = { actor: caller.actor, caller, at: now() };
      const { email } = await removeMember(pool, caller.orgId, { id: request.params.member_id }, by);
      return { message: `${email} is no longer a member` };
    },
  );

  invitationRoutes(app);
}

function invitationRoutes(app: App): void {
  app.get(
    '/v1/invitations',
    {
      schema: {
        ...common,
        operationId: 'list_invitations',
        summary: 'List the open invitations, oldest first',
        description: 'Returns one page of the invitations that nobody has accepted, without their links.',
        querystring,
        response: answers(PaginatedInvitationResponse),
      },
    },
    (request) => listInvitations(contextOf(request), callerOf(request).orgId, request.query),
  );

  app.post(
    '/v1/invitations',
    {
      schema: {
        ...common,
        operationId: 'create_invitation',
        summary: 'Invite a person to the organization',
        description:
          'Returns a link that makes one person a member. A further invitation of the address replaces the first. Only an owner invites owners, or replaces the invitation of one. The operation takes no `Idempotency-Key`, because the service would have to store the link for it.',
        body: CreateInvitationRequest,
        response: answersToBody(
          InvitationWithLink,
          'owner_required',
          'quota_exceeded',
          'member_already_exists',
        ),
      },
    },
    async (request) => {
      const { pool, now, settings } = contextOf(request);
      const caller = callerOf(request);
      const { email, role, labels = {}, expires_in_hours: hours = DEFAULT_INVITATION_HOURS } = request.body;
      const by = { actor: caller.actor, caller, at: now() };
      const { invitation, token } = await inviteMember(
        pool,
        caller.orgId,
        { email, role, labels, hours },
        by,
      );
      const { publicUrl = originOf(request), basePath = '' } = settings;
      // A fragment is not sent to servers, so no log has it.
      return { ...presentInvitation(invitation), link: `${publicUrl}${basePath}/console/sign-in#${token}` };
    },
  );

  app.delete(
    '/v1/invitations/:invitation_id',
    {
      schema: {
        ...common,
        operationId: 'revoke_invitation',
        summary: 'Revoke an invitation',
        description:
          'Ends the link of the invitation at once. Only an owner revokes the invitation of an owner.',
        params: invitationParams,
        response: answersToBody(MessageResponse, 'owner_required', 'invitation_not_found'),
      },
    },
    async (request) => {
      const { pool, now } = contextOf(request);
      const caller = callerOf(request);
      const by = { actor: caller.actor, caller, at: now() };
      const name = { id: request.params.invitation_id };
      const { email } = await revokeInvitation(pool, caller.orgId, name, by);
      return { message: `the invitation of ${email} is revoked` };
    },
  );
}

/** The address that the caller used. */
function originOf({ client }: FastifyRequest): string {
  return `${client.isHttps ? 'https' : 'http'}://${client.host ?? 'localhost'}`;
}
