import type { FastifyRequest } from 'fastify';
import type { Context, ServiceContext } from '../context.js';
import { TracedPool, TracedSql } from '../db/traced.js';
import { withSlowCommits } from '../db/transaction.js';
import { endAdmission } from '../http/admission.js';
import type { App } from '../http/route.js';
import type { Span } from '../lib/tracing.js';
import { callerOf } from './caller.js';

declare module 'fastify' {
  interface FastifyRequest {
    context: Context | null;
  }
}

/** Contexts are cached for this many organizations: making one takes about 10 microseconds. */
const MAX_CACHED = 1_000;

export function addRequestContexts(app: App, { requests, ...rest }: ServiceContext): void {
  const cached = new Map<string, Context>();
  function contextFor(orgId: string): Context {
    const context = { ...rest, ...requests.of(orgId) };
    if (cached.size >= MAX_CACHED) cached.clear();
    cached.set(orgId, context);
    return context;
  }
  app.addHook('onRequest', (request, _reply, done) => {
    const { orgId } = callerOf(request);
    const shared = cached.get(orgId) ?? contextFor(orgId);
    const { method, span } = request;
    const isRead = method === 'GET' || method === 'HEAD';
    const context = isRead
      ? shared
      : { ...shared, shared, pool: withSlowCommits(shared.pool, () => endAdmission(request)) };
    request.context = span?.context.sampled === true ? traced(context, span) : context;
    done();
  });
}

/** A context of one request: its statements are spans of it. */
function traced(context: Context, span: Span): Context {
  const { pool, reads, shared = context } = context;
  return {
    ...context,
    span,
    shared,
    pool: new TracedPool(pool, span),
    reads: new TracedSql(reads, span),
  };
}

/** The context of a request. Its connections see only the rows of the caller's organization. */
export function contextOf({ context }: FastifyRequest): Context {
  if (!context) throw new Error('the route was called without authentication');
  return context;
}
