import { Type } from 'typebox';
import type { Context } from '../context.js';
import { callerOf } from '../http/auth.js';
import { answers, type App } from '../http/route.js';
import { sandboxBreakdown, storageBreakdown } from './breakdown.js';
import { SandboxUsage, StorageUsage } from './schema.js';

const tags = ['billing'];
const form = 'RFC 3339 date-time or UTC date';

const querystring = Type.Object(
  {
    since: Type.Optional(
      Type.String({ description: `${form}, inclusive; the start of the current UTC month when left out.` }),
    ),
    until: Type.Optional(
      Type.String({
        description: `${form}, exclusive; now when left out. At most 366 days after \`since\`.`,
      }),
    ),
  },
  { additionalProperties: false },
);

export function usageRoutes(app: App, ctx: Context): void {
  app.get(
    '/v1/billing/usage/sandbox',
    {
      schema: {
        operationId: 'get_sandbox_breakdown',
        summary: 'Compute used, by sandbox and UTC day',
        tags,
        querystring,
        response: answers(SandboxUsage),
      },
    },
    (request) => sandboxBreakdown(ctx, callerOf(request).orgId, request.query),
  );

  app.get(
    '/v1/billing/usage/storage',
    {
      schema: {
        operationId: 'get_storage_breakdown',
        summary: 'Storage used, by volume and UTC day',
        tags,
        querystring,
        response: answers(StorageUsage),
      },
    },
    (request) => storageBreakdown(ctx, callerOf(request).orgId, request.query),
  );
}
