import { Type } from 'typebox';
import { callerOf } from '../../access/caller.js';
import { contextOf } from '../../access/request-context.js';
import { answers, answersToBody, type App } from '../../http/route.js';
import { MessageResponse, PageQuery } from '../../http/schema.js';
import { deletePool } from './delete.js';
import { putPool } from './put.js';
import { PaginatedPool, PoolName, PoolResponse, PoolWithSandboxes, PutPoolRequest } from './schema.js';
import { listPools, showPool } from './show.js';

const tags = ['pools'];
const params = Type.Object({ name: PoolName });

export function poolRoutes(app: App): void {
  app.get(
    '/v1/pools',
    {
      schema: {
        operationId: 'list_pools',
        scope: 'sandboxes:read',
        summary: 'List pools',
        description: 'Returns one page of the pools of the organization, in the order of their names.',
        tags,
        querystring: Type.Object(PageQuery, { additionalProperties: false }),
        response: answers(PaginatedPool, 'label_not_allowed'),
      },
    },
    (request) => listPools(contextOf(request), callerOf(request), request.query),
  );

  app.put(
    '/v1/pools/:name',
    {
      schema: {
        operationId: 'put_pool',
        scope: 'sandboxes:write',
        summary: 'Create a pool, or change it',
        description:
          'Keeps `size` sandboxes started for the creates of the organization. They count in its quotas, and their usage begins with their start. The same request can be sent again.',
        tags,
        params,
        body: PutPoolRequest,
        response: answersToBody(
          PoolResponse,
          'invalid_sandbox_config',
          'label_not_allowed',
          'not_supported',
          'quota_exceeded',
        ),
      },
    },
    (request) => putPool(contextOf(request), callerOf(request), request.params.name, request.body),
  );

  app.get(
    '/v1/pools/:name',
    {
      schema: {
        operationId: 'get_pool',
        scope: 'sandboxes:read',
        summary: 'Get a pool with its sandboxes',
        description: 'Returns one pool, and the sandboxes that no create has taken from it.',
        tags,
        params,
        response: answers(PoolWithSandboxes, 'pool_not_found', 'label_not_allowed'),
      },
    },
    (request) => showPool(contextOf(request), callerOf(request), request.params.name),
  );

  app.delete(
    '/v1/pools/:name',
    {
      schema: {
        operationId: 'delete_pool',
        scope: 'sandboxes:write',
        summary: 'Delete a pool',
        description:
          'Removes the pool and the sandboxes that no create has taken from it. Sandboxes that it gave away stay.',
        tags,
        params,
        response: answersToBody(MessageResponse, 'pool_not_found', 'label_not_allowed'),
      },
    },
    (request) => deletePool(contextOf(request), callerOf(request), request.params.name),
  );
}
