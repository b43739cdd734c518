import rateLimit, { normalizeIP } from '@fastify/rate-limit';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { actorId } from '../audit/events/actor.js';
import { ApiError } from '../http/errors.js';
import { clientAddressOf } from '../http/forwarded.js';
import type { App } from '../http/route.js';
import { normalizeAddress } from '../lib/cidr.js';
import type { Settings } from '../settings.js';
import { callerOf } from './caller.js';

const KEY_WINDOW_SECS = 10;
const ADDRESS_WINDOW_SECS = 60;
/** The most keys, and the most addresses, that are counted. Beyond that the least recently seen are evicted. */
const MAX_COUNTED = { cache: 20_000 };

export interface Limits {
  countRequest(request: FastifyRequest, reply: FastifyReply): Promise<void>;
  /** Counts work that a client asks for on an open connection as one more request. Throws `rate_limited`. */
  countMore(request: FastifyRequest): Promise<void>;
  /** Counts a failed authentication by address, or by IPv6 network of 64 bits. Throws `rate_limited`. */
  countFailure(request: FastifyRequest): Promise<void>;
}

/**
 * Limits the requests of a key and the failed authentications of an address. Responses have the fields `RateLimit` and
 * `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers). Every process counts separately.
 */
export async function makeLimits(
  app: App,
  { rateLimit: perSecond, failedAuthLimit: perMinute }: Settings,
): Promise<Limits> {
  await app.register(rateLimit, { global: false });
  const quota = perSecond * KEY_WINDOW_SECS;
  const countKey = app.createRateLimit({
    max: quota,
    timeWindow: KEY_WINDOW_SECS * 1000,
    ...MAX_COUNTED,
    keyGenerator: (request) => actorId(callerOf(request).actor),
  });
  const countFailure = app.createRateLimit({
    max: perMinute,
    timeWindow: ADDRESS_WINDOW_SECS * 1000,
    ...MAX_COUNTED,
    keyGenerator: networkOf,
  });
  const keyPolicy = `"key";q=${quota};w=${KEY_WINDOW_SECS}`;
  const failurePolicy = `"failures";q=${perMinute};w=${ADDRESS_WINDOW_SECS}`;

  return {
    async countRequest(request, reply) {
      if (perSecond === 0) return;
      const count = await countKey(request);
      if (count.isAllowed) return;
      const fields = fieldsOf('key', keyPolicy, count.remaining, count.ttlInSeconds);
      void reply.headers(fields);
      if (count.isExceeded) refuse('the key', fields, count.ttlInSeconds);
    },
    async countMore(request) {
      if (perSecond === 0) return;
      const count = await countKey(request);
      if (!count.isAllowed && count.isExceeded) refuse('the key', {}, count.ttlInSeconds);
    },
    async countFailure(request) {
      if (perMinute === 0) return;
      const count = await countFailure(request);
      if (count.isAllowed || !count.isExceeded) return;
      const fields = fieldsOf('failures', failurePolicy, count.remaining, count.ttlInSeconds);
      refuse('the address, without a key that opens anything', fields, count.ttlInSeconds);
    },
  };
}

function networkOf(request: FastifyRequest): string {
  return normalizeIP(normalizeAddress(clientAddressOf(request) ?? ''));
}

function fieldsOf(policy: string, policies: string, remaining: number, secs: number): Record<string, string> {
  return { 'ratelimit-policy': policies, ratelimit: `"${policy}";r=${remaining};t=${secs}` };
}

function refuse(whose: string, fields: Record<string, string>, secs: number): never {
  throw new ApiError('rate_limited', `too many requests of ${whose}: wait ${secs} s`, null, {
    headers: { ...fields, 'retry-after': String(secs) },
  });
}
