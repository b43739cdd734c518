import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import type { Authentication } from '../access/authenticate.js';
import { callerOf } from '../access/caller.js';
import { checkOwnOrigin } from '../access/origin.js';
import { SessionCookies } from '../access/session-cookie.js';
import type { ServiceContext } from '../context.js';
import { Slots } from '../fairness/slots.js';
import { clientAddressOf } from '../http/client-address.js';
import { ApiError } from '../http/errors.js';
import type { App } from '../http/route.js';
import { clientNetworkOf } from '../lib/cidr.js';
import { presentSession, SessionResponse } from './session-response.js';
import { SESSION_URL } from './session-routes.js';
import { signIn } from './sign-in.js';
import { signInByLink } from './sign-in-by-link.js';
import { acceptSmallBodies } from './small-bodies.js';

const SignInRequest = Type.Object({ key: Type.String() }, { additionalProperties: false });
const LinkRequest = Type.Object({ link: Type.String() }, { additionalProperties: false });

/** Many times the length of a key. */
const SIGN_IN_LIMIT = 1_024;
/** Each try of a link takes a connection of the database. */
const LINKS_UNDER_WAY = { total: 4, each: 2 };

/** Sign-ins by a key, and by the link of a member. */
export function signInRoutes(
  app: App,
  { requests, now, settings, pool }: ServiceContext,
  authentication: Pick<Authentication, 'signIn' | 'countFailure'>,
): void {
  const cookies = new SessionCookies(settings);
  const links = new Slots(LINKS_UNDER_WAY);
  acceptSmallBodies(app, SIGN_IN_LIMIT);
  const onRequest = (request: FastifyRequest, _reply: FastifyReply, done: () => void) => {
    // A page of another origin could sign a person in as somebody else.
    checkOwnOrigin(request);
    done();
  };

  app.post(
    SESSION_URL,
    {
      bodyLimit: SIGN_IN_LIMIT,
      schema: { hide: true, body: SignInRequest, response: { 201: SessionResponse } },
      onRequest,
    },
    async (request, reply) => {
      const key = await authentication.signIn(request, reply, request.body.key);
      const caller = callerOf(request);
      const session = await signIn({ pool: requests.of(caller.orgId).pool, now }, caller, key);
      void reply.code(201);
      void reply.header('set-cookie', cookies.give(request, session.token, session.lifetimeSecs));
      return presentSession(pool, caller, session);
    },
  );

  app.post(
    `${SESSION_URL}/link`,
    {
      bodyLimit: SIGN_IN_LIMIT,
      schema: { hide: true, body: LinkRequest, response: { 201: SessionResponse } },
      onRequest,
    },
    async (request, reply) => {
      const release = links.acquire(clientNetworkOf(clientAddressOf(request)));
      if (!release) throw tooManyAtOnce('links');
      try {
        const { caller, session } = await signInByLink({ pool, now, settings }, request.body.link);
        void reply.code(201);
        void reply.header('set-cookie', cookies.give(request, session.token, session.lifetimeSecs));
        return await presentSession(pool, caller, session);
      } catch (error) {
        if (error instanceof ApiError) authentication.countFailure(request);
        throw error;
      } finally {
        release();
      }
    },
  );
}

export function tooManyAtOnce(what: string): ApiError {
  return new ApiError('rate_limited', `too many ${what} are in progress: try again`, null, {
    headers: { 'retry-after': '1' },
  });
}
