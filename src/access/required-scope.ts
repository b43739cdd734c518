import type { FastifySchema } from 'fastify';
import { ApiError } from '../http/errors.js';
import type { Caller } from './caller.js';
import { covers, type RouteScope } from './scopes.js';

declare module 'fastify' {
  interface FastifySchema {
    /** What a key needs for the route, `any` when every key will do. Beside `operationId`, in every route below `/v1`. */
    scope?: RouteScope;
  }
}

/** Writes the scope of a route into the OpenAPI document. Throws when the route names none: it does not register. */
export function documentScope(schema: FastifySchema | undefined, url: string): void {
  if (schema?.scope === undefined) throw new Error(`the route ${url} names no scope`);
  if (schema.scope === 'any') return;
  Object.assign(schema, { security: [{ api_key: [schema.scope] }] });
}

/** Refuses a caller whose key does not have the scope that is needed. */
export function requireScope({ access }: Caller, needed: RouteScope): void {
  if (covers(access.scopes, needed)) return;
  throw new ApiError('insufficient_scope', `the key does not have the scope ${needed}`, {
    required_scope: needed,
    scopes: [...access.scopes],
  });
}
