import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Context } from '../context.js';
import { ApiError, type Details } from '../http/errors.js';
import { clientAddressOf } from '../http/forwarded.js';
import type { App } from '../http/route.js';
import { whenOver } from '../http/when-over.js';
import { makeConcurrencyLimit } from '../lib/concurrency-limit.js';
import { CidrSet, clientNetworkOf } from '../lib/cidr.js';
import type { Instant } from '../lib/instant.js';
import { sleep } from '../lib/sleep.js';
import type { Access } from './access.js';
import { callerOf } from './caller.js';
import { KeyCache } from './key-cache.js';
import { refusalReasonOf } from './key-lookup.js';
import { accessOf } from './key-queries.js';
import { KeyUses } from './key-uses.js';
import { makeLimits, unitsOf } from './rate-limit.js';
import { requireScope } from './required-scope.js';
import { makeRevocationWatch } from './revocation-watch.js';
import { covers } from './scopes.js';
import { checkOrigin, invalidTicket, ticketHashOf, TicketKeys } from './terminal-ticket.js';

export const REFUSAL_DELAY_MS = 1_000;

/**
 * Makes the `onRequest` hook of the API, which runs before the body is read. It authenticates the key, and checks the address
 * of the client, the rate and the scope of the route. A malformed, unknown, expired or revoked key gets the same answer; a
 * request without a key is also told the missing header.
 */
export async function makeAuthenticationHook(
  app: App,
  ctx: Context,
): Promise<(request: FastifyRequest, reply: FastifyReply) => Promise<void>> {
  const keys = new KeyCache(ctx.pool, ctx.changes);
  const tickets = new TicketKeys(ctx.pool);
  app.decorateRequest('ticketHash', null);
  const uses = new KeyUses(ctx);
  const limits = makeLimits(ctx.settings);
  const { total } = ctx.settings.connections;
  const underWay = makeConcurrencyLimit({ total: Infinity, each: Math.ceil(total / 2) });
  const revocations = makeRevocationWatch(ctx);
  const isAllowedAddress = makeAddressCheck();
  // This process refuses a key that it has just revoked without waiting for the notification.
  app.addHook('onRoute', (route) => {
    if (route.schema?.scope !== 'keys:write') return;
    route.onSend = (_request, reply, _payload, done) => {
      if (reply.statusCode < 300) keys.invalidate();
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
    await uses.close().catch((error: unknown) => ctx.log.warn({ err: error }, 'closing failed'));
  });

  async function findByTicket(request: FastifyRequest, at: Instant) {
    const hash = ticketHashOf(request);
    if (!hash) return undefined;
    // The process that received the request has checked it, and knows the host that the client named.
    if (request.forwardedFor === null) checkOrigin(request, ctx.settings.terminalOrigins);
    request.ticketHash = hash;
    try {
      return await tickets.keyOf(hash, at);
    } catch (error) {
      await orRefuseLate(() => limits.countFailure(request));
      throw error;
    }
  }

  /** A client beyond a limit waits for the refusal, so that each of its connections makes few requests. */
  async function orRefuseLate(check: () => void): Promise<void> {
    try {
      check();
    } catch (error) {
      await sleep(REFUSAL_DELAY_MS, ctx.stopping);
      throw error;
    }
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

  return async (request, reply) => {
    const match = /^Bearer +(\S+) *$/i.exec(request.headers.authorization ?? '');
    const secret = match?.[1] ?? '';
    const ip = clientAddressOf(request);
    const at = ctx.now();
    const find = (await findByTicket(request, at)) ?? (() => keys.find(secret, clientNetworkOf(ip ?? '')));
    const key = request.ticketHash === null ? (keys.cached(secret) ?? (await find())) : await find();
    const reason = key && refusalReasonOf(key, at);
    if (!key || reason !== undefined) {
      if (key && reason !== undefined) uses.recordRefusal(key, reason);
      await orRefuseLate(() => limits.countFailure(request));
      if (request.ticketHash) throw invalidTicket();
      throw match ? invalidKey() : missingKey();
    }
    const access = accessOf(key);
    request.caller = {
      orgId: key.org_id,
      actor: { kind: 'api_key', api_key_id: key.id, name: key.name },
      access,
      key,
    };
    if (!isAllowedAddress(access, ip)) {
      uses.recordRefusal(key, 'address');
      await orRefuseLate(() => limits.countFailure(request));
      throw new ApiError('address_not_allowed');
    }
    await orRefuseLate(() => holdShare(request, reply));
    // The process that received the request has counted it.
    if (request.forwardedFor === null) await orRefuseLate(() => limits.countRequest(request, reply, 1));
    request.countMore = (units) => limits.countMore(request, units);
    const scope = request.routeOptions.schema!.scope!;
    if (!covers(access.scopes, scope)) uses.recordRefusal(key, 'scope');
    requireScope(request.caller, scope);
    uses.recordUse(key, at);
    // An operation that ends keys checks the key again itself (keys/lock-caller-key.ts). The watch must not cut its response
    // off: only that response has the new secret.
    if (scope === 'keys:write') return;
    revocations.watch(reply, async () => {
      const current = await find();
      if (!current || refusalReasonOf(current, ctx.now()) !== undefined) return false;
      return isAllowedAddress(accessOf(current), ip) && covers(current.scopes, scope);
    });
  };
}

function makeAddressCheck(): (access: Access, ip: string | undefined) => boolean {
  const sets = new WeakMap<readonly string[], CidrSet>();
  return ({ cidrs }, ip) => {
    if (cidrs.length === 0) return true;
    const set = sets.get(cidrs) ?? new CidrSet(cidrs);
    sets.set(cidrs, set);
    return ip !== undefined && set.includes(ip);
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
