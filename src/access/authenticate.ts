import type { FastifyReply, FastifyRequest, onRequestHookHandler } from 'fastify';
import type { IncomingMessage } from 'node:http';
import type { Context } from '../context.js';
import { callBack } from '../http/call-back.js';
import { ApiError, type Details } from '../http/errors.js';
import { clientAddressOf } from '../http/client-address.js';
import type { App } from '../http/route.js';
import { whenOver } from '../http/when-over.js';
import { Slots } from '../fairness/slots.js';
import { CidrSet, clientNetworkOf } from '../lib/cidr.js';
import type { Instant } from '../lib/instant.js';
import type { Access } from './access.js';
import { callerOf } from './caller.js';
import { KeyCache } from './key-cache.js';
import { accessOfHolder, callerOfHolder, isMember, refusalOf, type Holder } from './holder.js';
import type { SecretRow } from './key-queries.js';
import { KeyUses, type RefusalReason } from './key-uses.js';
import { ifStillOpen, MEMBER_TOKEN, MemberSessionCache, type MemberSessionRow } from './member-session.js';
import { makeLimits, unitsOf } from './rate-limit.js';
import { isSlugOf, OrganizationKeys, type Organizations, type TokenPlace } from './organization-keys.js';
import { organizationOf } from './organization-path.js';
import { requireScope } from './required-scope.js';
import { makeRevocationWatch } from './revocation-watch.js';
import { checkTerminalOrigin } from './origin.js';
import { covers } from './scopes.js';
import { SessionCache } from './session-cache.js';
import { checkCsrf, csrfTokenOf, invalidSession, SessionCookies, type Session } from './session-cookie.js';
import { ifOpen, type SessionRow } from './session-queries.js';
import { SessionUses } from './session-uses.js';
import { invalidTicket, ticketHashOf, TicketKeys } from './terminal-ticket.js';

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The route may end the key of its request, as every route with the scope `keys:write`. */
    endsKeys?: boolean;
  }
}

/** The holder of the credential of a request, and the error when it is not accepted. */
interface Credential<H extends Holder = Holder> {
  cached?: H | undefined;
  /** The holder as it is now. */
  find: () => Promise<H | undefined>;
  refusal: () => ApiError;
}

interface Presented {
  credential: Credential;
  /** The token of a session. */
  token?: string;
  at: Instant;
}

export interface Authentication {
  /**
   * The `onRequest` hook of the API, which runs before the body is read. It authenticates the key, and checks the
   * address of the client, the rate and the scope of the route. A malformed, unknown, expired or revoked key gets the
   * same answer; a request without a key is also told the missing header.
   */
  authenticate: onRequestHookHandler;
  /** Checks a key like that of a request, and makes it the caller. */
  signIn(request: FastifyRequest, reply: FastifyReply, secret: string): Promise<SecretRow>;
  /** Counts a failed sign-in against the address of the client. Throws `rate_limited`. */
  countFailure(request: FastifyRequest): void;
  /** This process refuses a session that it has just ended without waiting for the notification. */
  forgetSessions(): void;
  /** The organization of a key that was valid lately. */
  ownerOf(request: IncomingMessage): string | undefined;
}

export async function makeAuthentication(
  app: App,
  ctx: Context,
  organizations: Organizations,
): Promise<Authentication> {
  const keys = new KeyCache(ctx.pool, ctx.changes);
  const organizationKeys = new OrganizationKeys(ctx.pool, ctx.changes, (key, slug) =>
    organizations.keyIn(key, slug),
  );
  const sessions = new SessionCache(ctx.pool, ctx.changes);
  const memberSessions = new MemberSessionCache(ctx.pool, ctx.changes);
  const tickets = new TicketKeys(ctx.pool);
  app.decorateRequest('ticketHash', null);
  app.decorateRequest('session', null);
  app.decorateReply('watched', null);
  const uses = new KeyUses(ctx);
  const sessionUses = new SessionUses(ctx);
  const limits = makeLimits(ctx.settings);
  const cookies = new SessionCookies(ctx.settings);
  const { total } = ctx.settings.connections;
  const underWay = new Slots({ total: Infinity, each: Math.ceil(total / 2) });
  const revocations = makeRevocationWatch(ctx);
  const isAllowedAddress = makeAddressCheck();
  // This process refuses a key that it has just revoked without waiting for the notification.
  app.addHook('onRoute', (route) => {
    if (route.schema?.scope !== 'keys:write' && route.config?.endsKeys !== true) return;
    route.onSend = (_request, reply, _payload, done) => {
      if (reply.statusCode < 300) {
        keys.invalidate();
        organizationKeys.invalidate();
        sessions.invalidate();
      }
      done();
    };
  });
  app.addHook('onResponse', (_request, reply, done) => {
    revocations.unwatch(reply);
    done();
  });
  app.addHook('onSend', (request, reply, payload, done) => {
    const units = unitsOf(request, payload);
    if (units > 0 && request.caller && request.forwardedFor === null)
      limits.countAnswer(request, reply, units);
    done();
  });
  app.addHook('onClose', async () => {
    revocations.close();
    keys.close();
    organizationKeys.close();
    sessions.close();
    memberSessions.close();
    for (const written of [uses, sessionUses])
      await written.close().catch((error: unknown) => ctx.log.warn({ err: error }, 'closing failed'));
  });

  function recordRefusal(holder: Holder, reason: RefusalReason): void {
    if (!isMember(holder)) uses.recordRefusal(holder, reason);
  }

  function recordUse(holder: Holder, at: Instant): void {
    if (isMember(holder)) sessionUses.recordUse(holder, at);
    else uses.recordUse(holder, at);
  }

  async function findByTicket(request: FastifyRequest, hash: Buffer, at: Instant): Promise<Credential> {
    // The process that received the request has checked it, and knows the host that the client named.
    if (request.forwardedFor === null) checkTerminalOrigin(request, ctx.settings.terminalOrigins);
    request.ticketHash = hash;
    try {
      const holderAt = await tickets.holderOf(hash, at);
      return { find: () => holderAt(ctx.now()), refusal: invalidTicket };
    } catch (error) {
      limits.countFailure(request);
      throw error;
    }
  }

  function findBySession(request: FastifyRequest, token: string, at: Instant): Credential {
    const network = networkOf(request);
    if (MEMBER_TOKEN.isWellFormed(token)) {
      return {
        cached: ifStillOpen(memberSessions.cached(token), at),
        find: async () => ifStillOpen(await memberSessions.find(token, network), ctx.now()),
        refusal: invalidSession,
      };
    }
    return {
      cached: ifOpen(sessions.cached(token), at),
      find: async () => ifOpen(await sessions.find(token, network), ctx.now()),
      refusal: invalidSession,
    };
  }

  function findByKey(request: FastifyRequest, secret: string, refusal = invalidKey): Credential<SecretRow> {
    const network = networkOf(request);
    return { cached: keys.cached(secret), find: () => keys.find(secret, network), refusal };
  }

  /** Until the connection has the answer: bodies and answers that move slowly count too. */
  function holdShare(request: FastifyRequest, reply: FastifyReply): void {
    const release = underWay.acquire(callerOf(request).orgId);
    if (release) {
      whenOver(reply, release);
      return;
    }
    const message = 'the organization has too many requests in progress: wait for their answers';
    throw new ApiError('rate_limited', message, null, { headers: { 'retry-after': '1' } });
  }

  /** Checks the holder, the address of the client and the rate. */
  function admit<H extends Holder>(
    request: FastifyRequest,
    reply: FastifyReply,
    holder: H | undefined,
    refusal: () => ApiError,
    at: Instant,
  ): H {
    const reason = holder && refusalOf(holder, at);
    if (!holder || reason !== undefined) {
      if (holder && reason !== undefined) recordRefusal(holder, reason);
      limits.countFailure(request);
      throw refusal();
    }
    request.caller = callerOfHolder(holder);
    if (!isAllowedAddress(request.caller.access, clientAddressOf(request))) {
      recordRefusal(holder, 'address');
      limits.countFailure(request);
      throw new ApiError('address_not_allowed');
    }
    holdShare(request, reply);
    // The process that received the request has counted it.
    if (request.forwardedFor === null) limits.countRequest(request, reply, 1);
    return holder;
  }

  function pass(
    request: FastifyRequest,
    reply: FastifyReply,
    { credential, token, found, at }: Presented & { found: Holder | undefined },
  ): void {
    const holder = admit(request, reply, found, credential.refusal, at);
    if (token !== undefined) {
      request.session = sessionOf(holder as SessionRow | MemberSessionRow, token);
      checkCsrf(request, request.session.csrfToken);
    }
    const { access } = callerOf(request);
    request.countMore = (units) => limits.countMore(request, units);
    const scope = request.routeOptions.schema!.scope!;
    if (!covers(access.scopes, scope)) recordRefusal(holder, 'scope');
    requireScope(request.caller!, scope);
    recordUse(holder, at);
    // An operation that ends keys checks the key again itself (keys/lock-caller-key.ts). The watch must not cut its
    // response off: only that response has the new secret.
    if (scope === 'keys:write' || request.routeOptions.config.endsKeys === true) return;
    const ip = clientAddressOf(request);
    revocations.watch(reply, async () => {
      const current = await credential.find();
      if (!current || refusalOf(current, ctx.now()) !== undefined) return false;
      const now = accessOfHolder(current);
      return isAllowedAddress(now, ip) && covers(now.scopes, scope);
    });
  }

  async function passLater(
    request: FastifyRequest,
    reply: FastifyReply,
    presented: Presented | Promise<Presented>,
  ): Promise<void> {
    const known = await presented;
    pass(request, reply, { ...known, found: await known.credential.find() });
  }

  /** A cached key, as of most requests, needs no promise. */
  const authenticate: onRequestHookHandler = (request, reply, done) => {
    const presented = present(request);
    const found = 'credential' in presented ? presented.credential.cached : undefined;
    if (found && 'credential' in presented) {
      pass(request, reply, { ...presented, found });
      return done();
    }
    void callBack(done, passLater(request, reply, presented));
  };

  /** Undefined: the holder opens nothing of the organization of this slug. */
  async function inOrganization(
    holder: Holder,
    slug: string,
    request: FastifyRequest,
    secret: string | undefined,
  ): Promise<Holder | undefined> {
    if (secret !== undefined) return organizationKeys.find(`${secret} ${slug}`, networkOf(request));
    // A session and a ticket have their organization already.
    return (await isSlugOf(ctx.pool, holder.org_id, slug)) ? holder : undefined;
  }

  /** The credential in the organization that the path names. */
  function inNamedOrganization(
    request: FastifyRequest,
    slug: string,
    { credential, ...presented }: Presented,
  ): Presented {
    const secret =
      presented.token === undefined && request.ticketHash === null
        ? secretOf(request.headers.authorization)
        : undefined;
    let notFound: ApiError | undefined;
    async function find(): Promise<Holder | undefined> {
      const holder = await credential.find();
      // A refused credential learns nothing of organizations.
      if (!holder || refusalOf(holder, ctx.now()) !== undefined) return holder;
      const there = await inOrganization(holder, slug, request, secret);
      notFound = there ? undefined : notOpened(await organizations.slugsOf(placeOf(holder, secret)));
      return there;
    }
    return { ...presented, credential: { find, refusal: () => notFound ?? credential.refusal() } };
  }

  function present(request: FastifyRequest): Presented | Promise<Presented> {
    const slug = organizationOf(request.raw);
    const presented = presentFor(request);
    if (slug === undefined) return presented;
    if ('credential' in presented) return inNamedOrganization(request, slug, presented);
    return presented.then((known) => inNamedOrganization(request, slug, known));
  }

  function presentFor(request: FastifyRequest): Presented | Promise<Presented> {
    const { authorization } = request.headers;
    const at = ctx.now();
    const ticket = ticketHashOf(request);
    if (ticket) return findByTicket(request, ticket, at).then((credential) => ({ credential, at }));
    const useCookie = authorization === undefined && ctx.settings.console;
    const token = useCookie ? cookies.tokenOf(request) : undefined;
    if (token !== undefined) return { credential: findBySession(request, token, at), token, at };
    const secret = secretOf(authorization);
    const refusal = secret === undefined ? missingKey : invalidKey;
    return { credential: findByKey(request, secret ?? '', refusal), at };
  }

  return {
    authenticate,
    async signIn(request, reply, secret) {
      const at = ctx.now();
      const { cached, find, refusal } = findByKey(request, secret);
      const key = admit(request, reply, cached ?? (await find()), refusal, at);
      uses.recordUse(key, at);
      return key;
    },
    countFailure: (request) => limits.countFailure(request),
    forgetSessions() {
      sessions.invalidate();
      memberSessions.invalidate();
    },
    ownerOf({ headers }) {
      const secret = secretOf(headers.authorization);
      return secret === undefined ? undefined : keys.seen(secret)?.org_id;
    },
  };
}

function secretOf(authorization = ''): string | undefined {
  return /^Bearer +(\S+) *$/i.exec(authorization)?.[1];
}

/** A session and a ticket open their organization alone. */
function placeOf(holder: Holder, secret: string | undefined): TokenPlace {
  if (secret !== undefined && !isMember(holder)) return holder;
  return { org_id: holder.org_id, id: null, member_id: null };
}

/** It must not depend on the slug: an unknown organization and one of others have the same answer. */
function notOpened(slugs: readonly string[]): ApiError {
  const message = `the path names no organization of this credential: it opens ${slugs.join(', ')}`;
  return slugs.length === 0
    ? new ApiError('org_not_found')
    : new ApiError('org_not_found', message, { organizations: [...slugs] });
}

function networkOf(request: FastifyRequest): string {
  return clientNetworkOf(clientAddressOf(request));
}

function sessionOf(
  { session_hash, session_expires_at }: SessionRow | MemberSessionRow,
  token: string,
): Session {
  return { hash: session_hash, csrfToken: csrfTokenOf(token), expiresAt: session_expires_at };
}

function makeAddressCheck(): (access: Access, ip: string) => boolean {
  const sets = new WeakMap<readonly string[], CidrSet>();
  return ({ cidrs }, ip) => {
    if (cidrs.length === 0) return true;
    const set = sets.get(cidrs) ?? new CidrSet(cidrs);
    sets.set(cidrs, set);
    return set.includes(ip);
  };
}

/** The same error for every key that is refused, whatever the reason. */
export function invalidKey(details: Details | null = null): ApiError {
  return new ApiError('invalid_api_key', undefined, details, { headers: { 'www-authenticate': 'Bearer' } });
}

/** The same error with the expected header. It reveals nothing about any key. */
function missingKey(): ApiError {
  return invalidKey({ header: 'Authorization', expected: 'Bearer <API key>' });
}
