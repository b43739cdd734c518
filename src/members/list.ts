import type { Context } from '../context.js';
import { readCursor } from '../http/parameters.js';
import type { PageQuery } from '../http/schema.js';
import { shortInstant } from '../lib/instant.js';
import { PAGE_LIMIT, toPage, type Page } from '../lib/page.js';
import { getInvitations, type InvitationRow } from './invitation-queries.js';
import { getMembers, type MemberRow } from './queries.js';
import type { InvitationResponse, OrgMemberResponse } from './schema.js';

export async function listMembers(
  ctx: Context,
  orgId: string,
  { cursor, limit = PAGE_LIMIT.default }: PageQuery,
): Promise<Page<OrgMemberResponse>> {
  const binding = ['members'];
  const after = readCursor(ctx.cursors, orgId, binding, cursor) as [string, string] | undefined;
  const rows = await getMembers(ctx.pool, orgId, after, limit + 1);
  return toPage(rows, limit, presentMember, ({ joined_at, id }) =>
    ctx.cursors.encode(orgId, binding, [joined_at, id]),
  );
}

export function presentMember({ joined_at, ...member }: MemberRow): OrgMemberResponse {
  return { ...member, avatar_url: null, joined_at: shortInstant(joined_at) };
}

export async function listInvitations(
  ctx: Context,
  orgId: string,
  { cursor, limit = PAGE_LIMIT.default }: PageQuery,
): Promise<Page<InvitationResponse>> {
  const binding = ['invitations'];
  const after = readCursor(ctx.cursors, orgId, binding, cursor) as [string, string] | undefined;
  const rows = await getInvitations(ctx.pool, orgId, after, limit + 1);
  return toPage(rows, limit, presentInvitation, ({ created_at, id }) =>
    ctx.cursors.encode(orgId, binding, [created_at, id]),
  );
}

export function presentInvitation({
  created_at,
  expires_at,
  ...invitation
}: InvitationRow): InvitationResponse {
  return { ...invitation, created_at: shortInstant(created_at), expires_at: shortInstant(expires_at) };
}
