import type { Authentication } from '../access/authenticate.js';
import { callerOf, type Caller } from '../access/caller.js';
import { checkOwnOrigin } from '../access/origin.js';
import { contextOf } from '../access/request-context.js';
import { invalidSession, SessionCookies, type Session } from '../access/session-cookie.js';
import type { ServiceContext } from '../context.js';
import type { Sql } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import { continueBody } from '../http/expect.js';
import { readJson } from '../http/read-json.js';
import type { App } from '../http/route.js';
import { shortInstant } from '../lib/instant.js';
import { getOrg } from '../orgs/queries.js';
import { signIn } from './sign-in.js';
import { signOut } from './sign-out.js';
import { Type, type Static } from 'typebox';
import { DateTime, Nullable, StringMap, Uuid } from '../http/schema.js';

const SignInRequest = Type.Object({ key: Type.String() }, { additionalProperties: false });

const SessionResponse = Type.Object({
  csrf_token: Type.String(),
  expires_at: DateTime,
  key: Type.Object({
    id: Uuid,
    name: Type.String(),
    prefix: Type.String(),
    scopes: Type.Array(Type.String()),
    labels: StringMap(),
    expires_at: Nullable(DateTime),
    organization: Type.Object({ id: Uuid, name: Type.String(), slug: Type.String() }),
  }),
});
type SessionResponse = Static<typeof SessionResponse>;

const URL = '/console/session';
/** Many times the length of a key. The body is read before the caller is known, so it is kept small. */
const SIGN_IN_LIMIT = 1_024;

/** The routes of a session that exists. They belong to the console, not to the documented API. */
export function sessionRoutes(
  app: App,
  { settings }: Pick<ServiceContext, 'settings'>,
  { forgetSessions }: Pick<Authentication, 'forgetSessions'>,
): void {
  const cookies = new SessionCookies(settings);
  app.get(
    URL,
    { schema: { hide: true, scope: 'any', response: { 200: SessionResponse } } },
    async (request) => present(contextOf(request).reads, callerOf(request), ofCookie(request)),
  );

  app.delete(URL, { schema: { hide: true, scope: 'any' } }, async (request, reply) => {
    await signOut(contextOf(request), callerOf(request), ofCookie(request));
    forgetSessions();
    return reply.code(204).header('set-cookie', cookies.clear()).send();
  });
}

export function signInRoute(
  app: App,
  { requests, now, settings }: ServiceContext,
  authentication: Pick<Authentication, 'signIn'>,
): void {
  const cookies = new SessionCookies(settings);
  app.decorateRequest('forwardedFor', null);
  app.addHook('preParsing', ({ raw }, _reply, _payload, done) => {
    continueBody(raw);
    done();
  });
  app.addContentTypeParser('application/json', ({ raw }, payload, done) => {
    const arrived = (bytes: number) => {
      if (bytes > SIGN_IN_LIMIT) {
        throw new ApiError('payload_too_large', undefined, { limit_bytes: SIGN_IN_LIMIT });
      }
    };
    arrived(Number(raw.headers['content-length'] ?? 0));
    readJson(payload, { arrived, byteLists: false }, done);
  });
  app.post(
    URL,
    {
      bodyLimit: SIGN_IN_LIMIT,
      schema: { hide: true, body: SignInRequest, response: { 201: SessionResponse } },
      onRequest: (request, _reply, done) => {
        // A page of another origin could sign a person in as somebody else.
        checkOwnOrigin(request);
        done();
      },
    },
    async (request, reply) => {
      const key = await authentication.signIn(request, reply, request.body.key);
      const caller = callerOf(request);
      const { pool, reads } = requests.of(caller.orgId);
      const session = await signIn({ pool, now }, caller, key);
      void reply.code(201);
      void reply.header('set-cookie', cookies.give(request, session.token, session.lifetimeSecs));
      return present(reads, caller, session);
    },
  );
}

function ofCookie({ session }: { session: Session | null }): Session {
  if (!session) throw invalidSession();
  return session;
}

async function present(
  reads: Sql,
  { orgId, key, access }: Caller,
  { csrfToken, expiresAt }: Session,
): Promise<SessionResponse> {
  const org = await getOrg(reads, orgId);
  if (!key || !org) throw new ApiError('org_not_found');
  const { id, name, prefix } = key;
  return {
    csrf_token: csrfToken,
    expires_at: shortInstant(expiresAt),
    key: {
      id,
      name,
      prefix,
      scopes: [...access.scopes],
      labels: access.labels,
      expires_at: access.expiresAt && shortInstant(access.expiresAt),
      organization: { id: org.id, name: org.name, slug: org.slug },
    },
  };
}
