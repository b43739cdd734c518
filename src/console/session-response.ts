import { Type, type Static } from 'typebox';
import type { Caller } from '../access/caller.js';
import type { Session } from '../access/session-cookie.js';
import type { Sql } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import { DateTime, Nullable, StringMap, Uuid } from '../http/schema.js';
import { shortInstant } from '../lib/instant.js';
import { getMembersOfPerson } from '../members/queries.js';
import { getOrg } from '../orgs/queries.js';

const Organization = Type.Object({ id: Uuid, name: Type.String(), slug: Type.String() });

export const SessionResponse = Type.Object({
  csrf_token: Type.String(),
  expires_at: DateTime,
  organization: Organization,
  /** Those that the session can switch to, with this one. */
  organizations: Type.Array(Organization),
  scopes: Type.Array(Type.String()),
  labels: StringMap(),
  /** Null in the session of a member. */
  key: Nullable(
    Type.Object({
      id: Uuid,
      name: Type.String(),
      prefix: Type.String(),
      expires_at: Nullable(DateTime),
    }),
  ),
  /** Null in the session of a key. */
  member: Nullable(
    Type.Object({
      id: Uuid,
      email: Type.String(),
      display_name: Nullable(Type.String()),
      role: Type.String(),
    }),
  ),
});
export type SessionResponse = Static<typeof SessionResponse>;

/** `sql`: not that of a request, which sees one organization only. */
export async function presentSession(
  sql: Sql,
  { orgId, key, member, access }: Caller,
  { csrfToken, expiresAt }: Session,
): Promise<SessionResponse> {
  const org = await getOrg(sql, orgId);
  if (!org) throw new ApiError('org_not_found');
  const { id, name, slug } = org;
  const person = member?.person_id ?? null;
  const memberships = person === null ? [] : await getMembersOfPerson(sql, person);
  return {
    csrf_token: csrfToken,
    expires_at: shortInstant(expiresAt),
    organization: { id, name, slug },
    organizations:
      person === null
        ? [{ id, name, slug }]
        : memberships.map(({ org_id, org_name, org_slug }) => ({
            id: org_id,
            name: org_name,
            slug: org_slug,
          })),
    scopes: [...access.scopes],
    labels: access.labels,
    key: key
      ? {
          id: key.id,
          name: key.name,
          prefix: key.prefix,
          expires_at: access.expiresAt && shortInstant(access.expiresAt),
        }
      : null,
    member: member
      ? {
          id: member.member_id,
          email: member.email,
          display_name: member.display_name,
          role: member.role,
        }
      : null,
  };
}
