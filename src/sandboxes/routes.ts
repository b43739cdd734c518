import type { FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import { callerOf } from '../access/caller.js';
import { contextOf } from '../access/request-context.js';
import type { Shared } from '../context.js';
import { badParameter } from '../http/errors.js';
import { answers, answersToWrite, type App } from '../http/route.js';
import { documented, Field, MessageResponse, PageQuery, Repeatable, Uuid, Words } from '../http/schema.js';
import { sendJson } from '../http/send-json.js';
import { writerOf } from '../idempotency/keyed.js';
import { WriteHeaders } from '../idempotency/schema.js';
import { createSandbox } from './lifecycle/create.js';
import { destroySandbox } from './lifecycle/destroy.js';
import { acceptByteLists } from '../spec/file-patches.js';
import { acceptFlatSource } from '../spec/flat-source.js';
import { listSandboxes } from './reads/list.js';
import { SEARCHED } from './reads/list-queries.js';
import type { SandboxKey } from './queries.js';
import { runRoutes, waitFor } from './run-routes.js';
import { SandboxLookups, showSandbox } from './reads/show.js';
import { summarizeSandboxes } from './reads/summary.js';
import { SandboxSummary } from './reads/summary-schema.js';
import { acceptContractWords } from '../spec/contract-words.js';
import { acceptEnvMap } from '../spec/env-schema.js';
import { PaginatedSandboxResponse, SandboxResponse } from './row.js';
import { CreateSandboxRequest } from '../spec/specification.js';
import { UpdateSandboxRequest } from '../spec/update-schema.js';
import { SandboxStatus, StopReason } from '../spec/statuses.js';
import { showToSdk } from '../spec/sdk-form.js';
import { CREATE_BODY_LIMIT } from '../spec/size-limits.js';
import { updateSandbox } from './lifecycle/update.js';
import { Waiters } from './lifecycle/wait.js';

const tags = ['sandboxes'];
const byId = Type.Object({ sandbox_id: Field(Uuid, 'The id of the sandbox.') });
const byName = Type.Object({ name: Type.String({ description: 'The name of the sandbox.' }) });

export function sandboxRoutes(app: App, ctx: Shared): void {
  const waiters = new Waiters(ctx.settings);
  const lookups = new SandboxLookups();

  app.get(
    '/v1/sandboxes',
    {
      onSend: showToSdk,
      schema: {
        operationId: 'list_sandboxes',
        scope: 'sandboxes:read',
        summary: 'List sandboxes',
        description: 'Returns one page of the sandboxes of the organization. The filters can be combined.',
        tags,
        querystring: Type.Object(
          {
            ...PageQuery,
            labels: Type.Optional(
              Type.String({
                description:
                  'Only sandboxes with all of these labels: a JSON object of strings, such as `{"team":"ml"}`.',
              }),
            ),
            status: Repeatable(
              SandboxStatus,
              'Only sandboxes with this status. The parameter can be repeated.',
            ),
            stop_reason: Repeatable(
              StopReason,
              'Only sandboxes whose latest run ended for this reason. The parameter can be repeated.',
            ),
            name_prefix: Type.Optional(
              Type.String({
                minLength: 1,
                maxLength: 128,
                description: 'Only sandboxes whose names begin with this text.',
              }),
            ),
            name_contains: Type.Optional(
              Type.String({
                minLength: 1,
                maxLength: 128,
                description:
                  `Only sandboxes whose names have this text in them, in any case of letters. A page looks at ${SEARCHED} names; ` +
                  'with fewer matches it is short or empty, and `next_cursor` goes on after them.',
              }),
            ),
            created_after: Type.Optional(
              Type.String({
                ...documented({ format: 'date-time' }),
                description: 'Only sandboxes created after this RFC 3339 date-time.',
              }),
            ),
            created_before: Type.Optional(
              Type.String({
                ...documented({ format: 'date-time' }),
                description: 'Only sandboxes created before this RFC 3339 date-time.',
              }),
            ),
            sort: Type.Optional(
              Words(['-created_at', 'created_at', 'name'], {
                description: 'The order of the list. Default: `-created_at`, the newest first.',
              }),
            ),
          },
          { additionalProperties: false },
        ),
        response: answers(PaginatedSandboxResponse),
      },
    },
    async (request, reply) =>
      sendJson(reply, await listSandboxes(contextOf(request), callerOf(request), request.query)),
  );

  app.get(
    '/v1/sandboxes/summary',
    {
      schema: {
        operationId: 'summarize_sandboxes',
        scope: 'sandboxes:read',
        summary: 'Count the sandboxes of the organization',
        description:
          'Returns the number of sandboxes in each status, and the starts and failures of the latest 24 hours.',
        tags,
        response: answers(SandboxSummary, 'label_not_allowed'),
      },
    },
    (request) => summarizeSandboxes(contextOf(request), callerOf(request)),
  );

  app.post(
    '/v1/sandboxes',
    {
      preValidation: [acceptFlatSource, acceptByteLists, acceptEnvMap, acceptContractWords],
      onSend: showToSdk,
      bodyLimit: CREATE_BODY_LIMIT,
      config: { byteLists: true },
      schema: {
        operationId: 'create_sandbox',
        scope: 'sandboxes:write',
        summary: 'Create a sandbox, and start it if asked to',
        description:
          'Creates a sandbox. With `start=true` it is started too, and with `wait_for` the answer waits for the start.',
        tags,
        querystring: Type.Object(
          {
            start: Type.Optional(
              Type.Boolean({ default: false, description: 'Whether to start the sandbox.' }),
            ),
            ...waitFor.running,
          },
          { additionalProperties: false },
        ),
        body: CreateSandboxRequest,
        headers: WriteHeaders,
        response: answersToWrite(
          SandboxResponse,
          'invalid_sandbox_config',
          'label_not_allowed',
          'quota_exceeded',
          'budget_exceeded',
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
      return waiters.hold(contextOf(request), caller, wait, reply, (wantedUntil) =>
        createSandbox(contextOf(request), caller, request.body, { start: startNow, wantedUntil }),
      );
    },
  );

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
    // The contract names some operations without the noun.
    const byNameSuffix = suffix === '_sandbox' ? '' : suffix;
    // A key with required labels finds only sandboxes that have them.
    const keyOf = (request: FastifyRequest): SandboxKey => ({
      ...nameOf(request.params),
      requiredLabels: callerOf(request).access.labels,
    });

    app.get(
      path,
      {
        onSend: showToSdk,
        schema: {
          operationId: get,
          scope: 'sandboxes:read',
          summary: 'Get a sandbox',
          description: 'Returns one sandbox of the organization.',
          tags,
          params,
          response: answers(SandboxResponse, 'sandbox_not_found'),
        },
      },
      async (request, reply) =>
        sendJson(
          reply,
          await showSandbox(contextOf(request), lookups, callerOf(request).orgId, keyOf(request)),
        ),
    );

    app.delete(
      path,
      {
        schema: {
          operationId: `delete${suffix}`,
          scope: 'sandboxes:write',
          summary: 'Delete a sandbox in any status',
          description:
            'Ends the run of the sandbox, if there is one, and removes the sandbox with its disk. Its usage stays.',
          tags,
          params,
          headers: WriteHeaders,
          response: answersToWrite(MessageResponse, 'sandbox_not_found'),
        },
      },
      (request, reply) => destroySandbox(contextOf(request), writerOf(request, reply), keyOf(request)),
    );

    app.patch(
      path,
      {
        onSend: showToSdk,
        schema: {
          operationId: `update_sandbox${byNameSuffix}`,
          scope: 'sandboxes:write',
          summary: 'Change the name, slug or labels of a sandbox',
          description: 'Changes the given fields in any status and returns the sandbox.',
          tags,
          params,
          headers: WriteHeaders,
          body: UpdateSandboxRequest,
          response: answersToWrite(
            SandboxResponse,
            'label_not_allowed',
            'budget_exceeded',
            'sandbox_not_found',
            'name_already_exists',
          ),
        },
      },
      (request, reply) =>
        updateSandbox(contextOf(request), writerOf(request, reply), keyOf(request), request.body),
    );

    runRoutes(app, waiters, { path, params, suffix, keyOf });
  }
}
