import { Type } from 'typebox';
import { callerOf } from '../../access/caller.js';
import { contextOf } from '../../access/request-context.js';
import { answers, type App } from '../../http/route.js';
import { PageQuery } from '../../http/schema.js';
import { ADDRESSES, sandboxKeyOf } from '../sessions/address.js';
import { listDenied } from './list-denied.js';
import { PaginatedDeniedConnection } from './schema.js';

export function networkRoutes(app: App): void {
  for (const { base, suffix, params } of ADDRESSES) {
    app.get(
      `${base}/network/denied`,
      {
        config: { onWorker: true },
        schema: {
          operationId: `list_denied_connections${suffix}`,
          scope: 'sandboxes:read',
          summary: 'List the refusals of the network of a sandbox',
          description:
            'Returns one page of the names, connections and requests that the gateway refused to the sandbox, the latest first. Equal ones are one entry. The list has the last 200 entries, and is lost when the service restarts.',
          tags: ['sandboxes'],
          params,
          querystring: Type.Object(PageQuery, { additionalProperties: false }),
          response: answers(PaginatedDeniedConnection, 'sandbox_not_found'),
        },
      },
      (request) => {
        const { orgId, access } = callerOf(request);
        const key = { ...sandboxKeyOf(request), requiredLabels: access.labels };
        return listDenied(contextOf(request), orgId, key, request.query);
      },
    );
  }
}
