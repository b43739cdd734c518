import type { FastifyReply } from 'fastify';
import type { Registry } from 'prom-client';
import { errorTypeOf } from '../http/request-outcome.js';
import type { App } from '../http/route.js';
import { whenOver } from '../http/when-over.js';
import type { Library } from './library.js';

/** The boundaries of the semantic conventions of OpenTelemetry. */
const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10];

/**
 * Names and labels are those of the semantic conventions of OpenTelemetry for HTTP servers, as Prometheus writes them.
 */
export function observeRequests({ Gauge, Histogram }: Library, registry: Registry): (app: App) => void {
  const registers = [registry];
  const durations = new Histogram({
    name: 'http_server_request_duration_seconds',
    help: 'Duration of HTTP requests, to the last byte of the answer. Live streams and long waits count too.',
    labelNames: ['http_request_method', 'http_route', 'http_response_status_code', 'error_type'],
    buckets: SECONDS,
    registers,
  });
  const active = new Gauge({
    name: 'http_server_active_requests',
    help: 'HTTP requests under way.',
    labelNames: ['http_request_method'],
    registers,
  });
  return (app) => {
    app.addHook('onRequest', (request, reply, done) => {
      const { method } = request;
      active.inc({ http_request_method: method });
      whenOver(reply, () => {
        active.dec({ http_request_method: method });
        durations.observe(labelsOf(reply), reply.elapsedTime / 1_000);
      });
      done();
    });
  };
}

/** A path without a route is the choice of the caller, so it is no label. */
function labelsOf(reply: FastifyReply): Record<string, string | number> {
  const { method, routeOptions } = reply.request;
  const error = errorTypeOf(reply);
  return {
    http_request_method: method,
    ...(routeOptions.url === undefined ? {} : { http_route: routeOptions.url }),
    http_response_status_code: reply.statusCode,
    ...(error === null ? {} : { error_type: error }),
  };
}
