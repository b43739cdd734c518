import { callerOf } from '../access/caller.js';
import { contextOf } from '../access/request-context.js';
import type { Shared } from '../context.js';
import { ApiError } from '../http/errors.js';
import { answers, type App } from '../http/route.js';
import { QuotaUsage } from './schema.js';
import { showQuotas } from './show.js';

export function quotaRoutes(app: App, ctx: Shared): void {
  app.get(
    '/v1/quotas',
    {
      schema: {
        operationId: 'get_quotas',
        scope: 'billing:read',
        summary: 'Get the quotas of the organization and what is in use',
        description: 'Returns each limit with the amount in use. The operator sets the limits.',
        tags: ['organization'],
        response: answers(QuotaUsage, 'org_not_found'),
      },
    },
    async (request) => {
      const quotas = await showQuotas(contextOf(request).pool, callerOf(request).orgId, ctx.now());
      if (!quotas) throw new ApiError('org_not_found');
      return quotas;
    },
  );
}
