import type { FastifyRequest } from 'fastify';
import type { Context } from '../context.js';
import type { EventActor } from '../events/schema.js';
import type { Keyed } from '../idempotency/keyed.js';
import type { Access } from '../keys/access.js';
import { deadBecause, findKey } from '../keys/authenticate.js';
import { accessOf } from '../keys/queries.js';
import { ApiError } from './errors.js';

/** Whose request it is. Everything an operation touches is looked up under `orgId`. */
export interface Caller {
  orgId: string;
  actor: EventActor;
  /** What its key opens. */
  access: Access;
  /** Of a write with an `Idempotency-Key`. */
  keyed?: Keyed;
}

declare module 'fastify' {
  interface FastifyRequest {
    caller: Caller | null;
  }
}

/** Reads the bearer key of a request and looks up whose it is. Missing, malformed, unknown, revoked: one answer. */
export async function authenticateRequest(ctx: Context, request: FastifyRequest): Promise<void> {
  const match = /^Bearer +(\S+) *$/i.exec(request.headers.authorization ?? '');
  const key = match ? await findKey(ctx.pool, match[1]!) : undefined;
  if (!key || deadBecause(key, ctx.now()) !== undefined) {
    throw new ApiError('invalid_api_key', undefined, null, { headers: { 'www-authenticate': 'Bearer' } });
  }
  request.caller = {
    orgId: key.org_id,
    actor: { kind: 'api_key', api_key_id: key.id, name: key.name },
    access: accessOf(key),
  };
}

/** The caller of a request that has passed authentication. */
export function callerOf(request: FastifyRequest): Caller {
  if (!request.caller) throw new Error('the route was called without authentication');
  return request.caller;
}
