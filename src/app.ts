import type { Context } from './context.js';
import { serveOrg } from './db/requests.js';
import { eventRoutes } from './events/routes.js';
import { callerOf, makeDoor } from './http/auth.js';
import { healthRoutes } from './http/health.js';
import { registerOpenapi } from './http/openapi.js';
import type { App } from './http/route.js';
import { documentScope } from './http/scope.js';
import { makeServer, refuseOtherMethods } from './http/server.js';
import { compile } from './http/validation.js';
import { keyRoutes } from './keys/routes.js';
import { memberRoutes } from './members/routes.js';
import { orgRoutes } from './orgs/routes.js';
import { quotaRoutes } from './quotas/routes.js';
import { agentRoute } from './sandboxes/agent-route.js';
import { logRoutes } from './sandboxes/log-routes.js';
import { sandboxRoutes } from './sandboxes/routes.js';
import { CreateSandboxRequest } from './sandboxes/schema.js';
import { usageRoutes } from './usage/routes.js';
import { volumeFileRoutes } from './volumes/files/routes.js';
import { volumeRoutes } from './volumes/routes.js';
import { webhookRoutes } from './webhooks/routes.js';

/**
 * Compiles ahead what takes a quarter of a second, for a moment in which there is nothing else to do: the validator keeps
 * what it has compiled.
 */
export function warmUp(): void {
  compile(CreateSandboxRequest);
}

/**
 * The whole HTTP API. Every route there is stands, or is registered by a group that stands, here. What stands before them can be
 * replaced, to measure what it costs.
 */
export async function buildApp(
  ctx: Context,
  { doorOf = makeDoor, serve = serveOrg }: { doorOf?: typeof makeDoor; serve?: typeof serveOrg } = {},
): Promise<App> {
  const app = makeServer(ctx.log, ctx.settings);
  const routes = new Map<string, Set<string>>();
  app.addHook('onRoute', ({ url, method }) => {
    const methods = routes.get(url) ?? new Set();
    for (const name of [method].flat()) methods.add(name);
    routes.set(url, methods);
  });

  await registerOpenapi(app);
  healthRoutes(app, ctx);
  await app.register(async (api) => {
    api.addHook('onRequest', await doorOf(api, ctx));
    // The last hook before the handlers: what reads the body begins in the connection and not in the request.
    api.addHook('preHandler', (request, _reply, done) => serve(callerOf(request).orgId, done));
    // A parameter that is not understood is refused, also where none is.
    api.addHook('onRoute', ({ schema, url }) => {
      documentScope(schema, url);
      if (schema) schema.querystring ??= { type: 'object', properties: {}, additionalProperties: false };
    });
    // Behind the door there is nothing but what the caller's organization has.
    const own: Context = { ...ctx, pool: ctx.requests };
    sandboxRoutes(api, own);
    logRoutes(api, own);
    agentRoute(api, own);
    eventRoutes(api, own);
    webhookRoutes(api, own);
    usageRoutes(api, own);
    volumeRoutes(api, own);
    volumeFileRoutes(api, own);
    orgRoutes(api, own);
    memberRoutes(api, own);
    quotaRoutes(api, own);
    keyRoutes(api, own);
    return Promise.resolve();
  });
  refuseOtherMethods(app, routes);
  await app.ready();
  return app;
}
