import { setMaxListeners } from 'node:events';
import { makeAuthentication as authenticationOf, type Authentication } from './access/authenticate.js';
import { acceptBodies } from './access/bodies.js';
import { splitOrganization } from './access/organization-path.js';
import { addRequestContexts } from './access/request-context.js';
import { documentScope } from './access/required-scope.js';
import { eventExamples } from './audit/examples.js';
import { eventRoutes } from './audit/routes.js';
import { deviceConfirmationRoutes, deviceRoutes } from './console/device/routes.js';
import { passkeyRoutes } from './console/passkey-routes.js';
import { passkeySignInRoutes } from './console/passkey-sign-in-routes.js';
import { consolePages } from './console/pages.js';
import { loadProvider } from './console/loaded-provider.js';
import { backChannelRoute, providerRoutes, signInOptionsRoute } from './console/provider-routes.js';
import { sessionRoutes } from './console/session-routes.js';
import { signInRoutes } from './console/sign-in-routes.js';
import type { ServiceContext } from './context.js';
import { admitFairly } from './http/admission.js';
import { clientAddressOf } from './http/client-address.js';
import { readForwarded, refuseClients } from './http/forwarded.js';
import { healthRoutes } from './http/health.js';
import { landingRoute } from './http/landing.js';
import { registerOpenapi } from './http/openapi.js';
import type { App } from './http/route.js';
import { OtherMethods } from './http/other-methods.js';
import { makeServer } from './http/server.js';
import { traceRequests } from './http/trace-requests.js';
import { routeUpgrades } from './http/upgrade.js';
import { validatorOf } from './http/validation.js';
import { warnOfIgnoredFields } from './http/warnings.js';
import { PacedSteps } from './fairness/paced-steps.js';
import { keyExamples } from './keys/examples.js';
import { keyRoutes } from './keys/routes.js';
import { tokenExamples } from './keys/tokens/examples.js';
import { keyInOrganization } from './keys/tokens/in-organization.js';
import { findSlugs } from './keys/tokens/place-queries.js';
import { tokenRoutes } from './keys/tokens/routes.js';
import { clientNetworkOf } from './lib/cidr.js';
import { mcpExamples } from './mcp/examples.js';
import { mcpRoute } from './mcp/route.js';
import { memberExamples } from './members/examples.js';
import { memberRoutes } from './members/routes.js';
import { orgExamples } from './orgs/examples.js';
import { orgRoutes } from './orgs/routes.js';
import { previewExamples } from './previews/grants/examples.js';
import { previewRoutes } from './previews/grants/routes.js';
import { budgetExamples } from './budgets/examples.js';
import { budgetRoutes } from './budgets/routes.js';
import { quotaExamples } from './quotas/examples.js';
import { quotaRoutes } from './quotas/routes.js';
import { agentRoute } from './sandboxes/agent/route.js';
import { sandboxExamples } from './sandboxes/examples.js';
import { execExamples } from './sandboxes/exec/examples.js';
import { execRoutes } from './sandboxes/exec/routes.js';
import { sandboxFileExamples } from './sandboxes/files/examples.js';
import { sandboxFileRoutes } from './sandboxes/files/routes.js';
import { forwardToEngines } from './sandboxes/sessions/forward.js';
import { logRoutes } from './sandboxes/logs/routes.js';
import { StreamTurns } from './fairness/stream-turns.js';
import { portRoutes } from './sandboxes/ports/routes.js';
import { tunnelRoute } from './sandboxes/ports/tunnel.js';
import { sandboxRoutes } from './sandboxes/routes.js';
import { metricsExamples } from './sandboxes/metrics/examples.js';
import { metricsRoutes } from './sandboxes/metrics/routes.js';
import { Entrance } from './sandboxes/sessions/entrance.js';
import { sessionExamples } from './sandboxes/sessions/examples.js';
import { sessionRoutes as sandboxSessionRoutes } from './sandboxes/sessions/routes.js';
import { modificationExamples } from './sandboxes/modify/examples.js';
import { modificationRoutes } from './sandboxes/modify/routes.js';
import { networkExamples } from './sandboxes/network/examples.js';
import { networkRoutes } from './sandboxes/network/routes.js';
import { poolExamples } from './sandboxes/pools/examples.js';
import { poolRoutes } from './sandboxes/pools/routes.js';
import { terminalExamples } from './sandboxes/terminal/examples.js';
import { terminalRoutes } from './sandboxes/terminal/routes.js';
import { snapshotExamples } from './snapshots/examples.js';
import { forkExamples } from './snapshots/forks/examples.js';
import { forkRoutes } from './snapshots/forks/routes.js';
import { snapshotArchiveRoutes } from './snapshots/archives/routes.js';
import { snapshotRoutes } from './snapshots/routes.js';
import { CreateSandboxRequest } from './spec/specification.js';
import { templateExamples } from './templates/examples.js';
import { templateRoutes } from './templates/routes.js';
import { usageExamples } from './usage/examples.js';
import { usageRoutes } from './usage/routes.js';
import { volumeExamples } from './volumes/examples.js';
import { volumeFileExamples } from './volumes/files/examples.js';
import { volumeFileRoutes } from './volumes/files/routes.js';
import { volumeRoutes } from './volumes/routes.js';
import { registryCredentialExamples } from './registry-credentials/examples.js';
import { registryCredentialRoutes } from './registry-credentials/routes.js';
import { webhookExamples } from './webhooks/examples.js';
import { webhookRoutes } from './webhooks/routes.js';

/** Compiles the largest schema, which takes a tenth of a second, while the service waits for its database. */
export function warmUp(): void {
  validatorOf(CreateSandboxRequest)(undefined);
}

const EXAMPLES = {
  ...sandboxExamples,
  ...metricsExamples,
  ...modificationExamples,
  ...networkExamples,
  ...poolExamples,
  ...snapshotExamples,
  ...templateExamples,
  ...forkExamples,
  ...execExamples,
  ...sandboxFileExamples,
  ...terminalExamples,
  ...sessionExamples,
  ...previewExamples,
  ...eventExamples,
  ...registryCredentialExamples,
  ...webhookExamples,
  ...usageExamples,
  ...volumeExamples,
  ...volumeFileExamples,
  ...orgExamples,
  ...memberExamples,
  ...budgetExamples,
  ...quotaExamples,
  ...keyExamples,
  ...tokenExamples,
  ...mcpExamples,
};

interface AppOptions {
  /** The bench replaces it to measure the cost of authentication. */
  makeAuthentication?: typeof authenticationOf;
  /** The bench sets it to false, to measure the cost of fair turns. */
  hasTurns?: boolean;
  /** Adds the hooks of metrics. */
  observe?: ((app: App) => void) | undefined;
  /** Refuses clients: only other processes send requests, for sandboxes on the engine of this one. */
  onlyForwarded?: boolean;
}

/** Registers every route. */
export async function buildApp(
  ctx: ServiceContext,
  { makeAuthentication = authenticationOf, hasTurns = true, observe, onlyForwarded = false }: AppOptions = {},
): Promise<App> {
  const { tracing } = ctx;
  let authentication: Authentication | undefined;
  const others = new OtherMethods();
  const app = makeServer(ctx.log, ctx.settings, {
    ...ctx,
    others,
    split: splitOrganization,
    hasTurns,
    ownerOf: (request) => authentication?.ownerOf(request),
    observe(server) {
      if (tracing) traceRequests(server, tracing);
      observe?.(server);
    },
  });
  others.watch(app);

  app.decorateRequest('admission', null);
  if (hasTurns) {
    admitFairly(
      app,
      ctx.pace,
      (request) => request.caller?.orgId ?? clientNetworkOf(clientAddressOf(request)),
    );
  }
  await registerOpenapi(app, EXAMPLES);
  const { console: hasConsole, basePath } = ctx.settings;
  const provider = ctx.settings.provider ? loadProvider(ctx.settings.provider) : undefined;
  landingRoute(app, { hasConsole: hasConsole && !onlyForwarded, basePath });
  healthRoutes(app, ctx);
  app.addHook('onError', (_request, _reply, error, done) => {
    ctx.disk.noteFailure(error);
    done();
  });
  // Every visit in a sandbox listens to it.
  setMaxListeners(0, ctx.stopping);
  const turns = new StreamTurns(ctx.pace);
  await app.register(async (api) => {
    readForwarded(api, ctx.peer.seal, () => ctx.runtime.engineId);
    if (onlyForwarded) refuseClients(api);
    authentication = await makeAuthentication(api, ctx, {
      keyIn: (key, slug) => keyInOrganization(ctx, key, slug),
      slugsOf: (of) => findSlugs(ctx.pool, of),
    });
    // Nobody takes an engine for tests for another one.
    api.addHook('onRequest', (_request, reply, done) => {
      const { warnings = [] } = ctx.runtime;
      // They may have words of a program.
      const text = warnings.join(' ').replace(/[^ -~]/g, '?');
      if (text !== '') void reply.header('x-runtime-warning', text);
      done();
    });
    api.addHook('onRequest', authentication.authenticate);
    addRequestContexts(api, ctx);
    acceptBodies(api);
    forwardToEngines(api, ctx);
    // Unknown query parameters are refused, also where a route has none.
    api.addHook('onRoute', ({ schema, url }) => {
      documentScope(schema, url);
      if (schema) schema.querystring ??= { type: 'object', properties: {}, additionalProperties: false };
    });
    warnOfIgnoredFields(api);
    sandboxRoutes(api, ctx);
    const steps = new PacedSteps(ctx.pace);
    logRoutes(api, ctx, steps);
    metricsRoutes(api);
    modificationRoutes(api);
    networkRoutes(api);
    poolRoutes(api);
    snapshotRoutes(api);
    templateRoutes(api, ctx, steps);
    forkRoutes(api);
    snapshotArchiveRoutes(api, ctx, steps);
    const entrance = new Entrance(ctx);
    api.addHook('onClose', () => entrance.close());
    agentRoute(api, entrance, steps, ctx.log);
    execRoutes(api, entrance, steps);
    sandboxFileRoutes(api, entrance, steps);
    terminalRoutes(api, entrance);
    portRoutes(api, ctx, entrance, turns);
    sandboxSessionRoutes(api);
    previewRoutes(api);
    eventRoutes(api, ctx, steps);
    registryCredentialRoutes(api, ctx);
    webhookRoutes(api, ctx);
    usageRoutes(api, ctx);
    volumeRoutes(api);
    volumeFileRoutes(api, ctx, steps);
    orgRoutes(api);
    memberRoutes(api);
    budgetRoutes(api);
    quotaRoutes(api, ctx);
    keyRoutes(api, ctx);
    tokenRoutes(api);
    mcpRoute(api, ctx);
    if (ctx.settings.console) {
      sessionRoutes(api, ctx, authentication, provider);
      passkeyRoutes(api, ctx, authentication);
      deviceConfirmationRoutes(api, ctx, authentication);
    }
  });
  await app.register(async (internal) => tunnelRoute(internal, ctx, turns));
  if (ctx.settings.console && !onlyForwarded) {
    await app.register(async (open) => {
      open.decorateRequest('forwardedFor', null);
      await open.register(async (byKey) => {
        signInRoutes(byKey, ctx, authentication!);
        return Promise.resolve();
      });
      await open.register(async (byPasskey) => {
        passkeySignInRoutes(byPasskey, ctx, authentication!);
        return Promise.resolve();
      });
      await open.register(async (ofDevices) => {
        deviceRoutes(ofDevices, ctx, authentication!);
        return Promise.resolve();
      });
      signInOptionsRoute(open, ctx.settings, provider);
      if (provider) {
        await open.register(async (byProvider) => {
          providerRoutes(byProvider, ctx, authentication!, provider);
          return Promise.resolve();
        });
        await open.register(async (byProvider) => {
          backChannelRoute(byProvider, ctx, authentication!, provider, () =>
            authentication!.forgetSessions(),
          );
          return Promise.resolve();
        });
      }
      await consolePages(open, ctx.settings, ctx.log);
    });
  }
  others.refuse(app);
  routeUpgrades(app, ctx.settings);
  await app.ready();
  return app;
}
