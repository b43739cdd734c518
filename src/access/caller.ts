import type { FastifyRequest } from 'fastify';
import type { EventActor } from '../audit/events/schema.js';
import type { Access } from './access.js';
import type { SecretRow } from './key-queries.js';

/** Whose request it is. Everything an operation touches is looked up under `orgId`. */
export interface Caller {
  orgId: string;
  actor: EventActor;
  /** What its key opens. */
  access: Access;
  /** With which of its secrets it was asked. */
  key?: Pick<SecretRow, 'id' | 'secret_prefix' | 'hash'>;
}

declare module 'fastify' {
  interface FastifyRequest {
    caller: Caller | null;
  }
}

/** The caller of a request that has passed the door. */
export function callerOf(request: FastifyRequest): Caller {
  if (!request.caller) throw new Error('the route was called without authentication');
  return request.caller;
}
