import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import type { Shared } from '../context.js';
import { callerOf } from '../http/auth.js';
import { badParameter } from '../http/errors.js';
import { sendJson } from '../http/json-text.js';
import { answers, answersToWrite, type App } from '../http/route.js';
import { MessageResponse, PageQuery, Repeatable, Uuid, Words } from '../http/schema.js';
import { contextOf } from '../http/request-context.js';
import { writerOf } from '../idempotency/keyed.js';
import { WriteHeaders } from '../idempotency/schema.js';
import { create } from './create.js';
import { destroy } from './destroy.js';
import { list } from './list.js';
import type { SandboxKey } from './queries.js';
import {
  CreateSandboxRequest,
  PaginatedSandboxResponse,
  SandboxResponse,
  SandboxStatus,
  UpdateSandboxRequest,
} from './schema.js';
import { show } from './show.js';
import { start } from './start.js';
import { stop } from './stop.js';
import { update } from './update.js';
import { Waiters } from './wait.js';

const tags = ['sandboxes'];
const byId = Type.Object({ sandbox_id: Uuid });
const byName = Type.Object({ name: Type.String() });

const waitQuery = {
  wait_for: Type.Optional(
    Words(['running'], {
      title: 'SandboxWaitFor',
      description: 'Hold the answer until the sandbox runs or failed.',
    }),
  ),
  wait_timeout: Type.Optional(
    Type.Integer({
      format: 'int64',
      minimum: 0,
      description:
        'Longest hold in seconds, only with `wait_for`; the service holds for 120 at most. The answer is then the sandbox as it is.',
    }),
  ),
};

export function sandboxRoutes(app: App, ctx: Shared): void {
  const waiters = new Waiters(ctx.settings);

  app.get(
    '/v1/sandboxes',
    {
      schema: {
        operationId: 'list_sandboxes',
        scope: 'sandboxes:read',
        summary: 'List sandboxes',
        tags,
        querystring: Type.Object(
          {
            ...PageQuery,
            labels: Type.Optional(
              Type.String({
                description: 'A JSON object of strings, such as `{"team":"ml"}`; all must match.',
              }),
            ),
            status: Repeatable(SandboxStatus, 'Any of these. May be repeated.'),
            name_prefix: Type.Optional(Type.String({ minLength: 1, maxLength: 128 })),
            created_after: Type.Optional(Type.String({ description: 'RFC 3339 date-time, exclusive.' })),
            created_before: Type.Optional(Type.String({ description: 'RFC 3339 date-time, exclusive.' })),
            sort: Type.Optional(
              Words(['-created_at', 'created_at', 'name'], {
                description: '`-created_at`, newest first, unless said.',
              }),
            ),
          },
          { additionalProperties: false },
        ),
        response: answers(PaginatedSandboxResponse),
      },
    },
    async (request, reply) =>
      sendJson(reply, await list(contextOf(request), callerOf(request), request.query)),
  );

  app.post(
    '/v1/sandboxes',
    {
      schema: {
        operationId: 'create_sandbox',
        scope: 'sandboxes:write',
        summary: 'Create a sandbox, and start it when asked to',
        tags,
        querystring: Type.Object(
          { start: Type.Optional(Type.Boolean({ default: false })), ...waitQuery },
          { additionalProperties: false },
        ),
        body: CreateSandboxRequest,
        headers: WriteHeaders,
        response: answersToWrite(
          SandboxResponse,
          'invalid_sandbox_config',
          'label_not_allowed',
          'quota_exceeded',
          'volume_not_found',
          'name_already_exists',
        ),
      },
    },
    (request, reply) => {
      const { start: startNow = false, ...wait } = request.query;
      if (wait.wait_for !== undefined && !startNow) {
        throw badParameter('wait_for', 'wait_for is valid only with start=true');
      }
      const caller = writerOf(request, reply);
      return waiters.hold(contextOf(request), caller, wait, reply, () =>
        create(contextOf(request), caller, request.body, { start: startNow }),
      );
    },
  );

  // By id and by name alike: the same operations under both addresses.
  addressed(
    '/v1/sandboxes/:sandbox_id',
    { params: byId, get: 'get_sandbox', suffix: '_sandbox' },
    (params) => ({
      id: (params as { sandbox_id: string }).sandbox_id,
    }),
  );
  addressed(
    '/v1/sandboxes/by-name/:name',
    { params: byName, get: 'get_by_name', suffix: '_by_name' },
    (params) => ({
      name: (params as { name: string }).name,
    }),
  );

  function addressed(
    path: string,
    { params, get, suffix }: { params: typeof byId | typeof byName; get: string; suffix: string },
    nameOf: (params: unknown) => SandboxKey,
  ): void {
    // A key that is narrowed to labels finds only sandboxes that have them.
    const keyOf = (request: FastifyRequest): SandboxKey => ({
      ...nameOf(request.params),
      within: callerOf(request).access.labels,
    });

    app.get(
      path,
      {
        schema: {
          operationId: get,
          scope: 'sandboxes:read',
          summary: 'Get a sandbox',
          tags,
          params,
          response: answers(SandboxResponse, 'sandbox_not_found'),
        },
      },
      async (request, reply) =>
        sendJson(reply, await show(contextOf(request), callerOf(request).orgId, keyOf(request))),
    );

    app.delete(
      path,
      {
        schema: {
          operationId: `delete${suffix}`,
          scope: 'sandboxes:write',
          summary: 'Delete a sandbox in whatever status',
          tags,
          params,
          headers: WriteHeaders,
          response: answersToWrite(MessageResponse, 'sandbox_not_found'),
        },
      },
      (request, reply) => destroy(contextOf(request), writerOf(request, reply), keyOf(request)),
    );

    app.patch(
      path,
      {
        schema: {
          operationId: `update${suffix}`,
          scope: 'sandboxes:write',
          summary: 'Rename a sandbox in whatever status',
          tags,
          params,
          headers: WriteHeaders,
          body: UpdateSandboxRequest,
          response: answersToWrite(
            SandboxResponse,
            'label_not_allowed',
            'sandbox_not_found',
            'name_already_exists',
          ),
        },
      },
      (request, reply) => update(contextOf(request), writerOf(request, reply), keyOf(request), request.body),
    );

    app.post(
      `${path}/start`,
      {
        schema: {
          operationId: `start${suffix}`,
          scope: 'sandboxes:write',
          summary: 'Start a sandbox that is at rest',
          tags,
          params,
          querystring: Type.Object(waitQuery, { additionalProperties: false }),
          headers: WriteHeaders,
          response: answersToWrite(
            SandboxResponse,
            'quota_exceeded',
            'sandbox_not_found',
            'invalid_state_transition',
          ),
        },
      },
      (request, reply) => {
        const caller = writerOf(request, reply);
        return waiters.hold(contextOf(request), caller, request.query, reply, () =>
          start(contextOf(request), caller, keyOf(request)),
        );
      },
    );

    app.post(
      `${path}/stop`,
      {
        schema: {
          operationId: `stop${suffix}`,
          scope: 'sandboxes:write',
          summary: 'Stop a sandbox; answers at once',
          tags,
          params,
          headers: WriteHeaders,
          response: answersToWrite(SandboxResponse, 'sandbox_not_found', 'invalid_state_transition'),
        },
      },
      (request, reply) => stop(contextOf(request), writerOf(request, reply), keyOf(request)),
    );
  }
}
