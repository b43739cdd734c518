import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import type { Authentication } from '../access/authenticate.js';
import { checkOwnOrigin } from '../access/origin.js';
import { SessionCookies } from '../access/session-cookie.js';
import type { ServiceContext } from '../context.js';
import { Slots } from '../fairness/slots.js';
import { clientAddressOf } from '../http/client-address.js';
import { continueBody } from '../http/expect.js';
import type { App } from '../http/route.js';
import { Nullable } from '../http/schema.js';
import { clientNetworkOf } from '../lib/cidr.js';
import { reasonAgainst } from '../people/passkeys/relying-party.js';
import { SignInRefused, type RefusalCode } from '../people/refused.js';
import type { Settings } from '../settings.js';
import type { LoadedProvider } from './loaded-provider.js';
import { isSameState, SignInCookies } from './sign-in-cookie.js';
import { signInByProvider } from './sign-in-by-provider.js';
import { tooManyAtOnce } from './sign-in-routes.js';
import { signOutByProvider } from './sign-out-by-provider.js';

const URL_OF_PROVIDER = '/console/sign-in/provider';
/** Each needs answers of the provider. */
export const SIGN_INS_UNDER_WAY = { total: 16, each: 4 };
const LOGOUT_TOKEN_LIMIT = 16 * 1_024;

const OptionsResponse = Type.Object({
  provider: Nullable(Type.Object({ name: Type.String() })),
  /** Whether they work at the address that the browser used. */
  passkeys: Type.Boolean(),
});

/** Tells the sign-in page how people sign in here. */
export function signInOptionsRoute(
  app: App,
  { passkeys }: Pick<Settings, 'passkeys'>,
  provider: LoadedProvider | undefined,
): void {
  app.get(
    '/console/sign-in/options',
    { schema: { hide: true, response: { 200: OptionsResponse } } },
    async ({ client }, reply) => {
      void reply.header('cache-control', 'no-store');
      return Promise.resolve({
        provider: provider ? { name: provider.settings.name } : null,
        passkeys: reasonAgainst(passkeys, client) === null,
      });
    },
  );
}

/** Sign-ins by the OpenID provider. The first two are navigations of the browser, so their answers are redirects. */
export function providerRoutes(
  app: App,
  ctx: ServiceContext,
  authentication: Pick<Authentication, 'countFailure'>,
  provider: LoadedProvider,
): void {
  const { settings } = provider;
  const cookies = new SessionCookies(ctx.settings);
  const isHttps = settings.consoleUrl.startsWith('https:');
  const begun = new SignInCookies(settings.consoleUrl);
  const slots = new Slots(SIGN_INS_UNDER_WAY);

  /** Back to the sign-in page, which explains the code. */
  function refuse(request: FastifyRequest, reply: FastifyReply, error: unknown): FastifyReply {
    const code: RefusalCode = error instanceof SignInRefused ? error.code : 'provider';
    ctx.log.warn({ err: error, code, request_id: request.id }, 'a sign-in by the provider was refused');
    authentication.countFailure(request);
    const query = new URLSearchParams({ problem: code, request: request.id });
    return reply.redirect(`${settings.consoleUrl}/sign-in?${query.toString()}`, 303);
  }

  /** Without a free slot the browser keeps its cookie, and can send the request again. */
  async function inTurn(
    request: FastifyRequest,
    reply: FastifyReply,
    work: () => Promise<FastifyReply>,
  ): Promise<FastifyReply> {
    const release = slots.acquire(clientNetworkOf(clientAddressOf(request)));
    if (!release) throw tooManyAtOnce('sign-ins');
    try {
      return await work();
    } catch (error) {
      return refuse(request, reply, error);
    } finally {
      release();
    }
  }

  app.addHook('onSend', (_request, reply, _payload, done) => {
    void reply.header('cache-control', 'no-store');
    done();
  });

  app.get<{ Querystring: { to?: unknown; invitation?: unknown } }>(
    URL_OF_PROVIDER,
    { schema: { hide: true } },
    async (request, reply) => {
      // A link of another page could make the person accept an invitation.
      checkOwnOrigin(request);
      const { to, invitation } = request.query;
      const wanted = {
        path: typeof to === 'string' ? to : '/',
        ...(typeof invitation === 'string' ? { invitation } : {}),
      };
      const { cookie, begun: signIn } = begun.begin(wanted, Date.now());
      return inTurn(request, reply, async () => {
        const url = await provider.authorizationUrl(signIn.secrets);
        return reply.header('set-cookie', cookie).redirect(url.href, 303);
      });
    },
  );

  app.get('/console/sign-in/callback', { schema: { hide: true } }, async (request, reply) => {
    const answer = new URL(request.url, 'http://callback').searchParams;
    const signIn = begun.read(request.headers.cookie, Date.now());
    return inTurn(request, reply, async () => {
      void reply.header('set-cookie', begun.clear());
      if (!signIn || !isSameState(answer.get('state') ?? '', signIn.secrets.state)) {
        throw new SignInRefused('expired', 'the browser has not begun this sign-in, or too long ago');
      }
      if (answer.get('error') === 'access_denied') throw new SignInRefused('cancelled', 'access_denied');
      const identity = await provider.redeem(answer, signIn.secrets);
      const session = await signInByProvider(ctx, settings, identity, signIn.invitation);
      void reply.header('set-cookie', cookies.give(request, session.token, session.lifetimeSecs, isHttps));
      return reply.redirect(`${settings.consoleUrl}${signIn.path}`, 303);
    });
  });
}

/** The provider ends sessions here (OpenID Connect Back-Channel Logout 1.0). */
export function backChannelRoute(
  app: App,
  ctx: ServiceContext,
  authentication: Pick<Authentication, 'countFailure'>,
  provider: LoadedProvider,
  forgetSessions: () => void,
): void {
  const slots = new Slots(SIGN_INS_UNDER_WAY);
  app.addHook('preParsing', ({ raw }, _reply, _payload, done) => {
    continueBody(raw);
    done();
  });
  app.addContentTypeParser(
    'application/x-www-form-urlencoded',
    { parseAs: 'string', bodyLimit: LOGOUT_TOKEN_LIMIT },
    (_request, body, done) => done(null, new URLSearchParams(String(body))),
  );
  app.post<{ Body: URLSearchParams }>(
    '/console/sign-in/back-channel-logout',
    { bodyLimit: LOGOUT_TOKEN_LIMIT, schema: { hide: true } },
    async (request, reply) => {
      void reply.header('cache-control', 'no-store');
      const release = slots.acquire(clientNetworkOf(clientAddressOf(request)));
      if (!release) throw tooManyAtOnce('sign-outs');
      try {
        const token = await provider.logout(request.body.get('logout_token') ?? '');
        if (!(await signOutByProvider(ctx, provider.settings.issuer, token))) {
          throw new Error('the logout token was used before');
        }
        forgetSessions();
        return await reply.code(200).send();
      } catch (error) {
        ctx.log.warn({ err: error }, 'a sign-out by the provider was refused');
        authentication.countFailure(request);
        return await reply.code(400).send({ error: 'invalid_request' });
      } finally {
        release();
      }
    },
  );
}
