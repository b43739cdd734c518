import swagger from '@fastify/swagger';
import swaggerUi from '@fastify/swagger-ui';
import type { FastifyRequest } from 'fastify';
import { addExamples, type Examples } from './examples.js';
import { withComponents } from './openapi-components.js';
import { serveDocument } from './serve-document.js';
import type { App } from './route.js';

const DESCRIPTION = `REST API of Sandkeep, the self-hosted control plane for sandboxes and volumes.

**Versions.** The path prefix \`/v1\` names the major version. Under it only additions are made: routes, optional
parameters, response fields, event types, error codes. Clients must ignore fields and words that they do not know. A field or
route that will be removed is marked \`deprecated\` and stays for at least six months, until \`/v2\` exists.
The enumerations \`status\` and \`status_reason\` of sandboxes and \`kind\` and \`status\` of volumes do not grow under \`/v1\`.

**Errors.** Every 4xx and 5xx answer has the body of \`ErrorResponse\`. Every answer has an \`x-request-id\`.

**Warnings.** An answer to a POST, PATCH or PUT has \`warnings\` when fields of the body were ignored: unknown ones and those without
effect here. Unknown fields that would restrict something or give something (network, resources, limits, mounts, lifetimes, secrets)
are always refused with \`invalid_request\`. With the header \`Prefer: handling=strict\` such a request is refused with \`invalid_request\`.

**Scopes.** Each operation names the scope that a key needs for it in \`x-required-scope\`. An operation without a scope accepts
every key. \`write\` includes \`read\` of the same kind; \`org:admin\` includes every scope.

**Organizations.** Every path below \`/v1\` is also below \`/v1/orgs/{slug}\`: \`/v1/orgs/{slug}/sandboxes\` is \`/v1/sandboxes\` of the
organization with this slug, and \`/v1/orgs/{slug}\` is \`/v1/me/org\`. A personal token opens each organization of its person so, every other
credential its own one. Other slugs are answered with 404 \`org_not_found\`.

**Lists.** \`next_cursor\` is null on the last page. An unknown filter is refused.`;

/** Collects the OpenAPI document from the routes that are registered after it, and serves it. */
export async function registerOpenapi(app: App, examples: Examples): Promise<void> {
  await app.register(swagger, {
    // It cannot read a server that is a relative address.
    stripBasePath: false,
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Sandkeep API',
        version: '0.1.0',
        description: DESCRIPTION,
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
        contact: { name: 'Sandkeep', url: 'https://github.com/sandkeep/sandkeep' },
      },
      // The document that a service serves has the address of that service.
      servers: [
        { url: 'http://127.0.0.1:8080', description: 'A service on this machine, with its default address.' },
      ],
      tags: [
        { name: 'sandboxes', description: 'Isolated compute with a lifecycle and a log.' },
        { name: 'pools', description: 'Started sandboxes that creates take.' },
        { name: 'templates', description: 'Disks that are built from a Dockerfile, with a name and a tag.' },
        { name: 'snapshots', description: 'Disks of sandboxes at one moment, from which others are made.' },
        { name: 'volumes', description: 'Storage that outlives sandboxes, and its files.' },
        {
          name: 'registry credentials',
          description: 'Stored credentials with which images are pulled.',
        },
        { name: 'events', description: 'The audit trail of the organization.' },
        { name: 'webhooks', description: 'Addresses that audit events are posted to.' },
        { name: 'organization', description: 'The organization, its members and its quotas.' },
        { name: 'keys', description: 'API keys and their permissions.' },
        { name: 'billing', description: 'Usage of compute and storage, and its cost.' },
        { name: 'mcp', description: 'Tools for agents, by the Model Context Protocol.' },
      ],
      components: {
        securitySchemes: {
          api_key: {
            type: 'http',
            scheme: 'bearer',
            description:
              'API key of an organization (`skp_…`), or the personal token of a member (`msb_pat_…`).',
          },
        },
      },
      security: [{ api_key: [] }],
    },
    transformObject: (document) =>
      'openapiObject' in document ? documentOf(document.openapiObject, examples) : {},
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
    transformSpecification: (document) => ({ ...document, servers: [{ url: '..' }] }),
    transformSpecificationClone: false,
    uiHooks: {
      onRequest: (request, reply, done) => {
        const target = pageOfDocs(request);
        if (target === undefined) done();
        else void reply.redirect(target);
      },
    },
    staticCSP: true,
    transformStaticCSP: (header) => header.replace('upgrade-insecure-requests;', ''),
  });
  serveDocument(app);
}

function documentOf<T extends { paths?: object; components?: object }>(document: T, examples: Examples): T {
  addExamples(document.paths ?? {}, examples);
  return withComponents(document);
}

/**
 * The page finds its files only from `/docs/`. Redirects are relative: a proxy may serve the API below a path prefix.
 */
function pageOfDocs({ url, routeOptions }: FastifyRequest): string | undefined {
  if (routeOptions.url === '/docs/static/index.html') return '../';
  if (routeOptions.url !== '/docs' || url === '/docs/') return undefined;
  return url.startsWith('/docs/') ? './' : 'docs/';
}
