import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Authentication } from '../access/authenticate.js';
import { hashOf } from '../access/key-secret.js';
import { checkOwnOrigin } from '../access/origin.js';
import { SessionCookies } from '../access/session-cookie.js';
import type { ServiceContext } from '../context.js';
import { Slots } from '../fairness/slots.js';
import { clientAddressOf } from '../http/client-address.js';
import { ApiError } from '../http/errors.js';
import type { App } from '../http/route.js';
import { clientNetworkOf } from '../lib/cidr.js';
import { tokenKind } from '../lib/token.js';
import { CHALLENGE_MS, makeChallenge } from '../people/passkeys/challenge.js';
import { relyingPartyOf } from '../people/passkeys/relying-party.js';
import { AssertRequest, RequestOptions } from '../people/passkeys/schema.js';
import { presentSession, SessionResponse } from './session-response.js';
import { SESSION_URL } from './session-routes.js';
import { signInByPasskey } from './sign-in-by-passkey.js';
import { tooManyAtOnce } from './sign-in-routes.js';
import { acceptSmallBodies } from './small-bodies.js';

/** Several times the length of an answer with an RSA key. */
export const PASSKEY_BODY_LIMIT = 16 * 1_024;
/** Each takes a connection of the database. */
const UNDER_WAY = { total: 4, each: 2 };
const COOKIE = 'sandkeep_passkey';
/** The token of a browser that has begun a sign-in with a passkey. */
const CHALLENGE_TOKEN = tokenKind('skw_');

/** Sign-ins by a passkey: a challenge for the browser, and its signature by an authenticator. */
export function passkeySignInRoutes(
  app: App,
  { now, settings, pool, log }: ServiceContext,
  authentication: Pick<Authentication, 'countFailure'>,
): void {
  const sessions = new SessionCookies(settings);
  const challenges = new SessionCookies(settings, COOKIE);
  const slots = new Slots(UNDER_WAY);
  acceptSmallBodies(app, PASSKEY_BODY_LIMIT);
  const onRequest = (request: FastifyRequest, _reply: FastifyReply, done: () => void) => {
    // A page of another origin could sign a person in as somebody else.
    checkOwnOrigin(request);
    done();
  };

  async function inTurn<T>(request: FastifyRequest, work: () => Promise<T>): Promise<T> {
    const release = slots.acquire(clientNetworkOf(clientAddressOf(request)));
    if (!release) throw tooManyAtOnce('sign-ins');
    try {
      return await work();
    } catch (error) {
      if (error instanceof ApiError) authentication.countFailure(request);
      throw error;
    } finally {
      release();
    }
  }

  app.post(
    `${SESSION_URL}/passkey/options`,
    { schema: { hide: true, response: { 200: RequestOptions } }, onRequest },
    (request, reply) =>
      inTurn(request, async () => {
        const party = relyingPartyOf(settings.passkeys, request.client);
        const token = CHALLENGE_TOKEN.make();
        const source = clientNetworkOf(clientAddressOf(request));
        const asked = { hash: hashOf(token), purpose: 'sign_in', source } as const;
        const challenge = await makeChallenge({ pool, now }, asked);
        void reply.header('cache-control', 'no-store');
        void reply.header('set-cookie', challenges.give(request, token, CHALLENGE_MS / 1_000));
        return {
          challenge: challenge.toString('base64url'),
          rpId: party.id,
          timeout: CHALLENGE_MS,
          userVerification: 'required' as const,
        };
      }),
  );

  app.post(
    `${SESSION_URL}/passkey`,
    {
      bodyLimit: PASSKEY_BODY_LIMIT,
      schema: { hide: true, body: AssertRequest, response: { 201: SessionResponse } },
      onRequest,
    },
    (request, reply) =>
      inTurn(request, async () => {
        const party = relyingPartyOf(settings.passkeys, request.client);
        const token = challenges.tokenOf(request);
        const { caller, session } = await signInByPasskey({ pool, now, log, settings }, token, request.body, {
          party,
          requestId: request.id,
        });
        void reply.code(201);
        const cookie = sessions.give(request, session.token, session.lifetimeSecs);
        void reply.header('set-cookie', [cookie, ...challenges.clear()]);
        return presentSession(pool, caller, session);
      }),
  );
}
