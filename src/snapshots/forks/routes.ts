import type { FastifyReply, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { callerOf } from '../../access/caller.js';
import { contextOf } from '../../access/request-context.js';
import { answers, answersToWrite, type App } from '../../http/route.js';
import { Field, PageQuery, Uuid } from '../../http/schema.js';
import { writerOf } from '../../idempotency/keyed.js';
import { WriteHeaders } from '../../idempotency/schema.js';
import { forkSandbox } from './fork.js';
import { listForkOperations, showForkOperation } from './list.js';
import { ForkOperation, ForkRequest, PaginatedFork } from './schema.js';

const tags = ['snapshots'];
const byId = Type.Object({ sandbox_id: Field(Uuid, 'The id of the sandbox.') });
const byName = Type.Object({ name: Type.String({ description: 'The name of the sandbox.' }) });
const operationId = Type.Object({ id: Field(Uuid, 'The id of the operation.') });
const page = Type.Object(PageQuery, { additionalProperties: false });

const fork = {
  scope: 'sandboxes:write',
  description:
    'Makes copies of a sandbox that is stopped or runs. Its disk is captured once, and a running one is paused meanwhile. All copies are admitted, or none. The answer is an operation, which ends later.',
  tags,
  headers: WriteHeaders,
  body: ForkRequest,
  response: answersToWrite(
    ForkOperation,
    'invalid_sandbox_config',
    'label_not_allowed',
    'quota_exceeded',
    'budget_exceeded',
    'sandbox_not_found',
    'volume_not_found',
    'name_already_exists',
    'port_taken',
    'invalid_state_transition',
    'not_supported',
  ),
} as const;

export function forkRoutes(app: App): void {
  app.post(
    '/v1/sandboxes/:sandbox_id/fork',
    { schema: { ...fork, operationId: 'fork_sandbox', summary: 'Fork a sandbox', params: byId } },
    (request, reply) => forkBy(request, reply, { id: request.params.sandbox_id }, request.body),
  );

  app.post(
    '/v1/sandboxes/by-name/:name/fork',
    { schema: { ...fork, operationId: 'fork_by_name', summary: 'Fork a sandbox', params: byName } },
    (request, reply) => forkBy(request, reply, { name: request.params.name }, request.body),
  );

  app.get(
    '/v1/fork-operations',
    {
      schema: {
        operationId: 'list_fork_operations',
        scope: 'sandboxes:read',
        summary: 'List operations that fork sandboxes',
        description:
          'Returns one page of the operations, the newest first. One that failed is listed for 30 days.',
        tags,
        querystring: page,
        response: answers(PaginatedFork),
      },
    },
    (request) => listForkOperations(contextOf(request), callerOf(request), request.query),
  );

  app.get(
    '/v1/fork-operations/:id',
    {
      schema: {
        operationId: 'get_fork_operation',
        scope: 'sandboxes:read',
        summary: 'Get an operation that forks a sandbox',
        description: 'Returns the progress of the operation, and the copies that exist with their statuses.',
        tags,
        params: operationId,
        response: answers(ForkOperation, 'fork_operation_not_found'),
      },
    },
    (request) => showForkOperation(contextOf(request), callerOf(request), request.params.id),
  );
}

function forkBy(
  request: FastifyRequest,
  reply: FastifyReply,
  key: { id: string } | { name: string },
  body: ForkRequest,
): Promise<ForkOperation> {
  const requiredLabels = callerOf(request).access.labels;
  return forkSandbox(
    contextOf(request),
    writerOf(request, reply),
    { ...key, requiredLabels },
    body,
    // Each copy costs as much of the rate limit as a create.
    (units) => request.countMore?.(units),
  );
}
