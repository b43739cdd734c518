import type { Readable } from 'node:stream';
import { Type, type TSchema } from 'typebox';
import type { Context } from '../context.js';
import { callerOf } from '../http/auth.js';
import { readLabels } from '../http/parameters.js';
import { answers, type App } from '../http/route.js';
import { Repeatable, Uuid } from '../http/schema.js';
import { makeAnswer } from './answer.js';
import { sandboxBreakdown, storageBreakdown } from './breakdown.js';
import { SandboxUsage, StorageUsage } from './schema.js';
import { readWindow } from './window.js';

const tags = ['billing'];
const form = 'RFC 3339 date-time or UTC date';

const range = {
  since: Type.Optional(
    Type.String({ description: `${form}, inclusive; the start of the current UTC month when left out.` }),
  ),
  until: Type.Optional(
    Type.String({
      description: `${form}, exclusive; now when left out. At most 366 days after \`since\`.`,
    }),
  ),
};
const closed = { additionalProperties: false };

/** The sandboxes of a compute report. */
const sandboxFilters = {
  sandbox_id: Repeatable(Uuid, 'Only these sandboxes.'),
  labels: Type.Optional(
    Type.String({
      description: 'JSON object of strings. Only what ran while the sandbox had all of these labels.',
    }),
  ),
};

export function usageRoutes(app: App, ctx: Context): void {
  const answer = makeAnswer(ctx);

  app.get(
    '/v1/billing/usage/sandbox',
    {
      schema: {
        operationId: 'get_sandbox_breakdown',
        summary: 'Compute used, by sandbox and UTC day',
        tags,
        querystring: Type.Object({ ...range, ...sandboxFilters }, closed),
        response: streamed(SandboxUsage),
      },
    },
    (request, reply) => {
      const window = readWindow(request.query, ctx.now());
      const scope = {
        orgId: callerOf(request).orgId,
        sandboxIds: request.query.sandbox_id,
        labels: readLabels('labels', request.query.labels),
      };
      return answer(request, reply, (tx, format) => sandboxBreakdown(tx, scope, window, format));
    },
  );

  app.get(
    '/v1/billing/usage/storage',
    {
      schema: {
        operationId: 'get_storage_breakdown',
        summary: 'Storage used, by volume and UTC day',
        tags,
        querystring: Type.Object(range, closed),
        response: streamed(StorageUsage),
      },
    },
    (request, reply) => {
      const window = readWindow(request.query, ctx.now());
      const { orgId } = callerOf(request);
      return answer(request, reply, (tx, format) => storageBreakdown(tx, orgId, window, format));
    },
  );
}

/** An answer that is sent while it is read, as JSON or as CSV. */
function streamed<T extends TSchema>(schema: T) {
  return {
    ...answers(schema, 'rate_limited'),
    200: {
      description: 'JSON, or CSV when `Accept` asks for it. One that breaks off is not complete.',
      content: {
        'application/json': { schema: Type.Unsafe<Readable>(schema) },
        'text/csv': { schema: Type.Unsafe<Readable>({ type: 'string' }) },
      },
    },
  };
}
