import type { FastifySchema } from 'fastify';
import { ApiError } from '../http/errors.js';
import type { Caller } from './caller.js';
import { covers, type RouteScope } from './scopes.js';

declare module 'fastify' {
  interface FastifySchema {
    /** The scope that a route below `/v1` requires; `any`: every key may call it. */
    scope?: RouteScope;
  }
}

/** Documents the scope of a route in OpenAPI. Throws if the route names none. */
export function documentScope(schema: FastifySchema | undefined, url: string): void {
  if (schema?.scope === undefined) throw new Error(`the route ${url} names no scope`);
  if (schema.scope === 'any') return;
  Object.assign(schema, { 'x-required-scope': schema.scope });
}

export function requireScope({ access, member }: Caller, needed: RouteScope): void {
  if (covers(access.scopes, needed)) return;
  const holder = member ? `your role "${member.role}"` : 'the key';
  throw new ApiError('insufficient_scope', `${holder} does not have the scope ${needed}`, {
    required_scope: needed,
    scopes: [...access.scopes],
  });
}
