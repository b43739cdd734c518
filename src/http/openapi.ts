import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import { addExamples, type Examples } from './examples.js';
import type { App } from './route.js';

const DESCRIPTION = `REST API of Sandkeep, the self-hosted control plane for sandboxes and volumes.

**Versions.** The path prefix \`/v1\` names the major version. Under it only additions are made: routes, optional
parameters, response fields, event types, error codes. Ignore what you do not know. A field or route that is to go is
marked \`deprecated\` here and stays at least six months and until \`/v2\` stands beside \`/v1\`.
The enumerations \`status\` and \`status_reason\` of sandboxes and \`kind\` and \`status\` of volumes do not grow under \`/v1\`.

**Errors.** Everything that is not 2xx has the body of \`ErrorResponse\`; every answer has an \`x-request-id\`.

**Scopes.** Each operation names the scope that a key needs for it (under \`security\`; where none is named, every key will do). \`write\` has \`read\` of the
same kind in it, and \`org:admin\` has all.

**Lists.** \`next_cursor\` is null on the last page. A filter that is not understood is refused.`;

/** Collects the OpenAPI document from the routes that are registered after it, and serves it. */
export async function registerOpenapi(app: App, examples: Examples): Promise<void> {
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Sandkeep API',
        version: '0.1.0',
        description: DESCRIPTION,
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      },
      tags: [
        { name: 'sandboxes', description: 'Isolated compute: list, create, start, stop, delete.' },
        { name: 'volumes', description: 'Storage that outlives sandboxes.' },
        { name: 'events', description: 'The audit trail.' },
        { name: 'webhooks', description: 'Audit events, posted to addresses of yours.' },
        { name: 'organization', description: 'The organization, its members and its quotas.' },
        { name: 'keys', description: 'What opens the organization, and how far.' },
        { name: 'billing', description: 'Usage, computed when it is read.' },
      ],
      components: {
        securitySchemes: {
          api_key: { type: 'http', scheme: 'bearer', description: 'API key of an organization (`skp_…`).' },
        },
      },
      security: [{ api_key: [] }],
    },
    transformObject: (document) =>
      'openapiObject' in document ? withComponents(document.openapiObject, examples) : {},
  });
  await app.register(swaggerUi, {
    routePrefix: '/docs',
    uiConfig: {
      layout: 'BaseLayout',
      validatorUrl: null,
      docExpansion: 'list',
      deepLinking: true,
      tryItOutEnabled: false,
      defaultModelsExpandDepth: 0,
    },
    theme: { title: 'Sandkeep API' },
    staticCSP: true,
    // The service itself speaks plain HTTP; who puts TLS before it does so for the whole address.
    transformStaticCSP: (header) => header.replace('upgrade-insecure-requests;', ''),
  });
  app.get('/openapi.json', { schema: { hide: true } }, () => app.swagger());
}

type Json = { [key: string]: unknown };

/** Moves every schema that has a title into `components`, once, and refers to it by name. Adds the examples. */
function withComponents<T extends { paths?: object; components?: object }>(
  document: T,
  examples: Examples,
): T {
  const schemas: Record<string, unknown> = {};

  function visit(value: unknown): unknown {
    if (Array.isArray(value)) return value.map(visit);
    if (typeof value !== 'object' || value === null) return value;
    const node: Json = Object.fromEntries(Object.entries(value).map(([key, item]) => [key, visit(item)]));
    const { title, $comment: description, ...schema } = node;
    if (typeof title !== 'string' || !isSchema(schema)) return node;
    schemas[title] ??= schema;
    const reference = { $ref: `#/components/schemas/${title}` };
    return description === undefined ? reference : { ...reference, description };
  }

  const paths = visit(document.paths) as object;
  addExamples(paths, examples);
  const sorted = Object.fromEntries(Object.entries(schemas).toSorted(([a], [b]) => (a < b ? -1 : 1)));
  return { ...document, paths, components: { ...document.components, schemas: sorted } };
}

function isSchema(node: Json): boolean {
  return ['type', 'anyOf', 'oneOf', 'enum'].some((key) => key in node);
}
