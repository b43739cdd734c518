import type { FastifyReply, FastifyRequest } from 'fastify';
import type { IncomingMessage } from 'node:http';
import type { Attributes, Span, Tracing } from '../lib/tracing.js';
import { isUuid } from '../lib/uuid.js';
import { errorTypeOf } from './request-outcome.js';
import type { App } from './route.js';
import { whenOver } from './when-over.js';

declare module 'fastify' {
  interface FastifyRequest {
    /** Null: no traces are exported. */
    span: Span | null;
  }
}

/** Other methods have one name, because a caller chooses them. */
const METHODS = new Set(['CONNECT', 'DELETE', 'GET', 'HEAD', 'OPTIONS', 'PATCH', 'POST', 'PUT', 'TRACE']);
const FAILED = 500;

/**
 * Gives each request a span by the semantic conventions of OpenTelemetry for HTTP servers, and its ids to each log
 * line. The span has the route in place of the path, which has names that callers chose.
 */
export function traceRequests(app: App, tracing: Tracing): void {
  const spans = new WeakMap<IncomingMessage, Span>();
  app.setChildLoggerFactory((log, bindings, options, raw) => {
    const span = tracing.serve(nameOf(raw.method), raw.headers);
    spans.set(raw, span);
    const { traceId, spanId } = span.context;
    return log.child({ ...bindings, traceId, spanId }, options);
  });
  app.addHook('onRequest', (request, reply, done) => {
    const span = spans.get(request.raw)!;
    request.span = span;
    if (span.context.sampled) whenOver(reply, () => endSpan(span, request, reply));
    done();
  });
}

function endSpan(span: Span, request: FastifyRequest, reply: FastifyReply): void {
  const { method, routeOptions, raw } = request;
  const { url: route } = routeOptions;
  if (route !== undefined) span.rename(`${nameOf(method)} ${route}`);
  span.set({
    'http.request.method': METHODS.has(method) ? method : '_OTHER',
    'http.response.status_code': reply.statusCode,
    'url.scheme': request.protocol,
    'network.protocol.version': raw.httpVersion,
    'sandkeep.request_id': request.id,
    ...(route === undefined ? {} : { 'http.route': route }),
    ...sandboxOf(request),
  });
  const error = errorTypeOf(reply);
  span.end(error, error !== null && (reply.statusCode >= FAILED || error === 'client_left'));
}

function sandboxOf({ params }: FastifyRequest): Attributes {
  const id = (params as { sandbox_id?: unknown } | undefined)?.sandbox_id;
  return typeof id === 'string' && isUuid(id) ? { 'sandkeep.sandbox_id': id } : {};
}

function nameOf(method = ''): string {
  return METHODS.has(method) ? method : 'HTTP';
}
