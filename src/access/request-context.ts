import type { FastifyRequest } from 'fastify';
import type { Context, ServiceContext } from '../context.js';
import type { App } from '../http/route.js';
import { callerOf } from './caller.js';

declare module 'fastify' {
  interface FastifyRequest {
    context: Context | null;
  }
}

/** Organizations whose context is kept: to make it anew for each request takes some 10 microseconds. */
const MOST_KEPT = 1_000;

/** Gives every request that has passed the door what its operation works with. */
export function giveContexts(app: App, { requests, ...rest }: ServiceContext): void {
  const kept = new Map<string, Context>();
  function contextFor(orgId: string): Context {
    const context = { ...rest, ...requests.of(orgId) };
    if (kept.size >= MOST_KEPT) kept.clear();
    kept.set(orgId, context);
    return context;
  }
  app.addHook('onRequest', (request, _reply, done) => {
    const { orgId } = callerOf(request);
    request.context = kept.get(orgId) ?? contextFor(orgId);
    done();
  });
}

/** What the operation of a request works with: its connections show the organization of the caller and nothing else. */
export function contextOf({ context }: FastifyRequest): Context {
  if (!context) throw new Error('the route was called without authentication');
  return context;
}
