import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Context } from '../context.js';
import { ApiError, type Details } from '../http/errors.js';
import type { App } from '../http/route.js';
import { includesAddress } from '../lib/cidr.js';
import type { Access } from './access.js';
import { KeyCache } from './key-cache.js';
import { deadBecause } from './key-lookup.js';
import { accessOf } from './key-queries.js';
import { KeyUses } from './key-uses.js';
import { makeLimits } from './rate-limit.js';
import { requireScope } from './required-scope.js';
import { watchOpenAnswers } from './revocation.js';
import { covers } from './scopes.js';

/**
 * The door of the API, to be passed by every request before anything else of it is looked at: whose key it is, whether it is
 * taken from this address and at this rate, and whether it has the scope of the route. A key that is malformed, unknown, expired
 * or revoked gets one answer; a request without a key is also shown which header is missing.
 */
export async function makeDoor(
  app: App,
  ctx: Context,
): Promise<(request: FastifyRequest, reply: FastifyReply) => Promise<void>> {
  const keys = new KeyCache(ctx.pool, ctx.changes);
  const uses = new KeyUses(ctx);
  const limits = await makeLimits(app, ctx.settings);
  const answers = watchOpenAnswers(ctx);
  // Who revoked a key over this process finds it refused at once, whenever the notification comes.
  app.addHook('onRoute', (route) => {
    if (route.schema?.scope !== 'keys:write') return;
    route.onSend = (_request, reply, _payload, done) => {
      if (reply.statusCode < 300) keys.forget();
      done();
    };
  });
  app.addHook('onResponse', (_request, reply, done) => {
    answers.done(reply);
    done();
  });
  app.addHook('onClose', async () => {
    answers.close();
    keys.close();
    await uses.close().catch((error: unknown) => ctx.log.warn({ err: error }, 'closing failed'));
  });

  return async (request, reply) => {
    const match = /^Bearer +(\S+) *$/i.exec(request.headers.authorization ?? '');
    const secret = match?.[1] ?? '';
    // Of the socket, which forgets it when it is closed.
    const { ip }: { ip: string | undefined } = request;
    const key = keys.remembered(secret) ?? (await keys.find(secret));
    const at = ctx.now();
    const dead = key && deadBecause(key, at);
    if (!key || dead !== undefined) {
      if (key && dead !== undefined) uses.refused(key, dead);
      await limits.ofFailures(request);
      throw match ? invalidKey() : missingKey();
    }
    const access = accessOf(key);
    request.caller = {
      orgId: key.org_id,
      actor: { kind: 'api_key', api_key_id: key.id, name: key.name },
      access,
      key,
    };
    if (!isNear(access, ip)) {
      uses.refused(key, 'address');
      await limits.ofFailures(request);
      throw new ApiError('address_not_allowed');
    }
    await limits.ofKey(request, reply);
    const scope = request.routeOptions.schema!.scope!;
    if (!covers(access.scopes, scope)) uses.refused(key, 'scope');
    requireScope(request.caller, scope);
    uses.used(key, at);
    // What ends keys asks again itself (keys/lock-caller-key.ts), and must not cut off its own answer: the new secret is nowhere else.
    if (scope === 'keys:write') return;
    answers.watch(reply, async () => {
      const now = await keys.find(secret);
      if (!now || deadBecause(now, ctx.now()) !== undefined) return false;
      return isNear(accessOf(now), ip) && covers(now.scopes, scope);
    });
  };
}

/** `ip`: of a socket that is closed there is none. */
function isNear({ cidrs }: Access, ip: string | undefined): boolean {
  return cidrs.length === 0 || (ip !== undefined && includesAddress(cidrs, ip));
}

/** One answer for every key that is not taken, whatever is wrong with it. */
export function invalidKey(details: Details | null = null): ApiError {
  return new ApiError('invalid_api_key', undefined, details, { headers: { 'www-authenticate': 'Bearer' } });
}

/** The same answer with the header that carries the key: a request without a key learns nothing of any key from it. */
function missingKey(): ApiError {
  return invalidKey({ header: 'Authorization', expected: 'Bearer <API key>' });
}
