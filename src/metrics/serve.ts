import Fastify from 'fastify';
import type { ServiceContext } from '../context.js';
import { urlOf } from '../http/listen.js';
import type { Metrics } from './open-metrics.js';

/** A scraper needs one. */
const MOST_CONNECTIONS = 64;
const REQUEST_TIMEOUT_MS = 15_000;

/** Serves `/metrics` on an address of its own, without a key: only the operator should reach it. */
export async function serveMetrics(
  metrics: Metrics,
  ctx: ServiceContext,
  address: { host: string; port: number },
): Promise<{ url: string; close(this: void): Promise<void> }> {
  const app = Fastify({ requestTimeout: REQUEST_TIMEOUT_MS, forceCloseConnections: true });
  app.server.maxConnections = MOST_CONNECTIONS;
  app.get('/metrics', async (_request, reply) => {
    const text = await metrics.text(ctx);
    return reply.type(metrics.contentType).send(text);
  });
  await app.listen(address);
  return { url: urlOf(app.server), close: () => app.close() };
}
