import type { FastifyReply, FastifyRequest } from 'fastify';
import { actorId } from '../audit/events/actor.js';
import { bytesIn, bytesOf } from '../http/admission.js';
import { ApiError } from '../http/errors.js';
import { clientAddressOf } from '../http/client-address.js';
import { clientNetworkOf } from '../lib/cidr.js';
import { WindowCounter, type WindowCount } from '../fairness/window-counter.js';
import type { Settings } from '../settings.js';
import { callerOf } from './caller.js';

export const KEY_WINDOW_SECS = 10;
/** The bytes of a body and its answer that cost a unit beyond the first one of the request. */
export const BYTES_OF_UNIT = 16 * 1024;
const ADDRESS_WINDOW_SECS = 60;

export interface Limits {
  /** Counts the units of a request against its key. Throws `rate_limited` if the key had none left. */
  countRequest(request: FastifyRequest, reply: FastifyReply, units: number): void;
  /** Counts work that a client asks for on an open connection. Throws `rate_limited`. */
  countMore(request: FastifyRequest, units: number): void;
  countAnswer(request: FastifyRequest, reply: FastifyReply, units: number): void;
  /** Counts a failed authentication by address, or by IPv6 network of 64 bits. Throws `rate_limited`. */
  countFailure(request: FastifyRequest): void;
}

/**
 * Limits the units of a key and the failed authentications of an address. Responses have the fields `RateLimit` and
 * `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers). Every process counts separately.
 */
export function makeLimits({
  rateLimit: perSecond,
  failedAuthLimit: perMinute,
}: Pick<Settings, 'rateLimit' | 'failedAuthLimit'>): Limits {
  const quota = perSecond * KEY_WINDOW_SECS;
  const keys = new WindowCounter(quota, KEY_WINDOW_SECS * 1000);
  const addresses = new WindowCounter(perMinute, ADDRESS_WINDOW_SECS * 1000);
  const keyPolicy = `"key";q=${quota};w=${KEY_WINDOW_SECS}`;
  const failurePolicy = `"failures";q=${perMinute};w=${ADDRESS_WINDOW_SECS}`;
  const fieldsOfKey = (count: WindowCount) => fieldsOf('key', keyPolicy, count);
  const countKey = (request: FastifyRequest, units: number) =>
    keys.add(actorId(callerOf(request).actor), units);

  return {
    countRequest(request, reply, units) {
      if (perSecond === 0) return;
      const count = countKey(request, units);
      const fields = fieldsOfKey(count);
      void reply.headers(fields);
      if (count.isExceeded) refuse('the key', fields, count);
    },
    countMore(request, units) {
      if (perSecond === 0) return;
      const count = countKey(request, units);
      if (count.isExceeded) refuse('the key', {}, count);
    },
    countAnswer(request, reply, units) {
      if (perSecond === 0) return;
      void reply.headers(fieldsOfKey(countKey(request, units)));
    },
    countFailure(request) {
      if (perMinute === 0) return;
      const count = addresses.add(clientNetworkOf(clientAddressOf(request)), 1);
      if (!count.isExceeded) return;
      const fields = fieldsOf('failures', failurePolicy, count);
      refuse('the address, without a key that opens anything', fields, count);
    },
  };
}

/** The units of a request beyond the first. Streams cost none: they have limits of their own. */
export function unitsOf(request: FastifyRequest, payload: unknown): number {
  return Math.floor((bytesIn(request) + bytesOf(payload)) / BYTES_OF_UNIT);
}

function fieldsOf(
  policy: string,
  policies: string,
  { remaining, secsLeft }: WindowCount,
): Record<string, string> {
  return { 'ratelimit-policy': policies, ratelimit: `"${policy}";r=${remaining};t=${secsLeft}` };
}

function refuse(whose: string, fields: Record<string, string>, { secsLeft }: WindowCount): never {
  throw new ApiError('rate_limited', `too many requests of ${whose}: wait ${secsLeft} s`, null, {
    headers: { ...fields, 'retry-after': String(secsLeft) },
  });
}
