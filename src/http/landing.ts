import { preferredType } from './preferred-type.js';
import type { App } from './route.js';

/**
 * Without a base path, addresses are relative: a proxy may serve everything below a path prefix that the service does
 * not know.
 */
const CONSOLE = 'console';
const DOCS = 'docs/';
const OPENAPI = 'openapi.json';

/**
 * `GET /`: a browser is sent to the console or the API reference, other clients get the addresses of the reference as
 * JSON.
 */
export function landingRoute(
  app: App,
  { hasConsole, basePath }: { hasConsole: boolean; basePath: string | undefined },
): void {
  const prefix = basePath === undefined ? '' : `${basePath}/`;
  app.get('/', { schema: { hide: true } }, (request, reply) => {
    void reply.header('vary', 'accept');
    const type = preferredType(request, ['application/json', 'text/html']);
    if (type === 'text/html') return reply.redirect(prefix + (hasConsole ? CONSOLE : DOCS));
    return { service: 'sandkeep', docs: prefix + DOCS, openapi: prefix + OPENAPI };
  });
}
