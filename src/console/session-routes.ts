import { Type } from 'typebox';
import type { Authentication } from '../access/authenticate.js';
import { callerOf } from '../access/caller.js';
import { callerOfHolder } from '../access/holder.js';
import { contextOf } from '../access/request-context.js';
import { invalidSession, SessionCookies, type Session } from '../access/session-cookie.js';
import type { ServiceContext } from '../context.js';
import { ApiError } from '../http/errors.js';
import type { App } from '../http/route.js';
import { Uuid } from '../http/schema.js';
import type { LoadedProvider } from './loaded-provider.js';
import { presentSession, SessionResponse } from './session-response.js';
import { signOut } from './sign-out.js';
import { switchOrganization } from './switch-organization.js';

export const SESSION_URL = '/console/session';
const SwitchRequest = Type.Object({ organization_id: Uuid }, { additionalProperties: false });
const SignedOut = Type.Object({ logout_url: Type.String() });

/** The routes of a session that exists. They belong to the console, not to the documented API. */
export function sessionRoutes(
  app: App,
  { settings, pool, now, log }: Pick<ServiceContext, 'settings' | 'pool' | 'now' | 'log'>,
  { forgetSessions }: Pick<Authentication, 'forgetSessions'>,
  provider: LoadedProvider | undefined,
): void {
  const cookies = new SessionCookies(settings);
  app.get(
    SESSION_URL,
    { schema: { hide: true, scope: 'any', response: { 200: SessionResponse } } },
    async (request) => presentSession(pool, callerOf(request), ofCookie(request)),
  );

  app.delete(
    SESSION_URL,
    { schema: { hide: true, scope: 'any', response: { 200: SignedOut, 204: Type.Null() } } },
    async (request, reply) => {
      const idToken = await signOut(contextOf(request), callerOf(request), ofCookie(request));
      forgetSessions();
      void reply.header('set-cookie', cookies.clear());
      // A sign-out here succeeds although the provider does not answer.
      const url =
        idToken === undefined
          ? undefined
          : await provider?.logoutUrl(idToken ?? undefined).catch((error: unknown) => {
              log.warn({ err: error }, 'the provider gave no address for a sign-out');
              return undefined;
            });
      return url ? reply.code(200).send({ logout_url: url.href }) : reply.code(204).send(null);
    },
  );

  app.post(
    `${SESSION_URL}/organization`,
    { schema: { hide: true, scope: 'any', body: SwitchRequest, response: { 200: SessionResponse } } },
    async (request, reply) => {
      ofCookie(request);
      const { member } = callerOf(request);
      if (!member) throw new ApiError('org_not_found');
      const session = await switchOrganization({ pool, now }, member, request.body.organization_id);
      forgetSessions();
      void reply.header('set-cookie', cookies.give(request, session.token, session.lifetimeSecs));
      return presentSession(pool, callerOfHolder(session.holder), session);
    },
  );
}

function ofCookie({ session }: { session: Session | null }): Session {
  if (!session) throw invalidSession();
  return session;
}
