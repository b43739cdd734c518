import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import type { Authentication } from '../access/authenticate.js';
import { callerOf } from '../access/caller.js';
import type { MemberSessionRow } from '../access/member-session.js';
import { contextOf } from '../access/request-context.js';
import type { ServiceContext } from '../context.js';
import { ApiError } from '../http/errors.js';
import type { App } from '../http/route.js';
import { Uuid } from '../http/schema.js';
import { addMillis, type Instant } from '../lib/instant.js';
import { presentPasskey } from '../people/passkeys/present.js';
import { getPasskeys, hasAccount } from '../people/passkeys/queries.js';
import { beginRegistration, registerPasskey } from '../people/passkeys/register.js';
import { reasonAgainst, relyingPartyOf } from '../people/passkeys/relying-party.js';
import { renameOwnPasskey } from '../people/passkeys/rename.js';
import { removeOwnPasskey } from '../people/passkeys/remove.js';
import {
  CreationOptions,
  PasskeyList,
  PasskeyResponse,
  RegisterRequest,
  RenameRequest,
} from '../people/passkeys/schema.js';
import { MEMBER_SESSION_MS } from './open-member-session.js';
import { PASSKEY_BODY_LIMIT } from './passkey-sign-in-routes.js';
import { SESSION_URL } from './session-routes.js';

const PASSKEYS_URL = `${SESSION_URL}/passkeys`;
/** A stolen session must not give itself a way in that stays. */
export const RECENT_MS = 15 * 60_000;
const params = Type.Object({ passkey_id: Uuid });

/** The passkeys of the member whose session it is. The routes belong to the console, not to the documented API. */
export function passkeyRoutes(
  app: App,
  { settings, pool: unbound, now, log }: ServiceContext,
  { forgetSessions }: Pick<Authentication, 'forgetSessions'>,
): void {
  const changing = (request: FastifyRequest) => ({
    pool: contextOf(request).pool,
    unbound,
    now,
    log,
    settings,
  });

  app.get(
    PASSKEYS_URL,
    { schema: { hide: true, scope: 'any', response: { 200: PasskeyList } } },
    async (request) => {
      const { pool } = contextOf(request);
      const { member } = callerOf(request);
      if (!member)
        return { passkeys: [], unavailable: 'You are signed in with a key. Members have passkeys.' };
      const { org_id: orgId, member_id: memberId, session_hash: hash } = member;
      const rows = await getPasskeys(pool, orgId, memberId, hash);
      const byProvider = settings.provider !== null && (await hasAccount(pool, orgId, memberId));
      return {
        passkeys: rows.map((row) => presentPasskey(row, row.is_current)),
        unavailable: byProvider
          ? `You sign in with ${settings.provider?.name ?? 'the provider'}.`
          : reasonAgainst(settings.passkeys, request.client),
      };
    },
  );

  app.post(
    `${PASSKEYS_URL}/options`,
    { schema: { hide: true, scope: 'any', response: { 200: CreationOptions } } },
    async (request, reply) => {
      const member = recentMember(request, now());
      const party = relyingPartyOf(settings.passkeys, request.client);
      void reply.header('cache-control', 'no-store');
      return beginRegistration(changing(request), member, party);
    },
  );

  app.post(
    PASSKEYS_URL,
    {
      bodyLimit: PASSKEY_BODY_LIMIT,
      schema: { hide: true, scope: 'any', body: RegisterRequest, response: { 201: PasskeyResponse } },
    },
    async (request, reply) => {
      const member = recentMember(request, now());
      const party = relyingPartyOf(settings.passkeys, request.client);
      const added = await registerPasskey(changing(request), member, request.body, party);
      void reply.code(201);
      return presentPasskey(added, false);
    },
  );

  app.patch(
    `${PASSKEYS_URL}/:passkey_id`,
    { schema: { hide: true, scope: 'any', params, body: RenameRequest, response: { 200: PasskeyResponse } } },
    async (request) => {
      // A name opens nothing, so the sign-in may be old.
      const member = sessionMember(request);
      const renamed = await renameOwnPasskey(
        changing(request),
        member,
        request.params.passkey_id,
        request.body.name,
      );
      return presentPasskey(renamed, renamed.is_current);
    },
  );

  app.delete(
    `${PASSKEYS_URL}/:passkey_id`,
    { schema: { hide: true, scope: 'any', params, response: { 204: Type.Null() } } },
    async (request, reply) => {
      const member = recentMember(request, now());
      await removeOwnPasskey(changing(request), member, request.params.passkey_id);
      forgetSessions();
      return reply.code(204).send(null);
    },
  );
}

/** Throws ApiError for the session of a key, and for one that has been open for long. */
function recentMember(request: FastifyRequest, at: Instant): MemberSessionRow {
  const member = sessionMember(request);
  // Switches of the organization keep the end of the sign-in.
  const opened = addMillis(member.session_expires_at, -MEMBER_SESSION_MS);
  if (addMillis(opened, RECENT_MS) <= at) throw new ApiError('recent_sign_in_required');
  return member;
}

/** Throws ApiError for a key. */
function sessionMember(request: FastifyRequest): MemberSessionRow {
  const { member } = callerOf(request);
  if (member && request.session) return member;
  throw new ApiError('passkeys_unavailable', 'Only members have passkeys, in a session of the console.');
}
