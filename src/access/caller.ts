import type { FastifyRequest } from 'fastify';
import type { EventActor } from '../audit/events/schema.js';
import type { Access } from './access.js';
import type { SecretRow } from './key-queries.js';
import type { MemberSessionRow } from './member-session.js';

/** The authenticated caller of a request. Operations select every row by `orgId`. */
export interface Caller {
  orgId: string;
  actor: EventActor;
  access: Access;
  /** Also the personal token of a member, who is the actor. */
  key?: Pick<SecretRow, 'id' | 'name' | 'prefix' | 'secret_prefix' | 'hash' | 'member_id' | 'member'>;
  /** The member of a session. */
  member?: MemberSessionRow;
}

declare module 'fastify' {
  interface FastifyRequest {
    caller: Caller | null;
    /** See Limits.countMore. */
    countMore: ((units: number) => void) | null;
  }
}

export function callerOf(request: FastifyRequest): Caller {
  if (!request.caller) throw new Error('the route was called without authentication');
  return request.caller;
}
