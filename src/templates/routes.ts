import type { Readable } from 'node:stream';
import { Type } from 'typebox';
import { callerOf } from '../access/caller.js';
import { contextOf } from '../access/request-context.js';
import { makeTransferSlots } from '../access/transfer-slots.js';
import type { Shared } from '../context.js';
import type { PacedSteps } from '../fairness/paced-steps.js';
import { answers, answersToWrite, type App } from '../http/route.js';
import { Field, MessageResponse, PageQuery, Repeatable, Uuid, Words } from '../http/schema.js';
import { eventStream, FollowHeaders, sendEvents } from '../http/sse.js';
import { acceptFiles, Bytes, OCTETS } from '../http/upload.js';
import { writerOf } from '../idempotency/keyed.js';
import { WriteHeaders } from '../idempotency/schema.js';
import type { Step } from '../registry/step.js';
import { MOST_CONTEXT_BYTES } from './context/receive.js';
import { createTemplate } from './create.js';
import { deleteTemplate } from './delete.js';
import { BuildFollowers } from './follow-log.js';
import { listTemplates, showTemplate } from './list.js';
import { TIMEOUT_SECS } from './read-request.js';
import { PaginatedTemplate, TemplateResponse } from './schema.js';
import { TEMPLATE_STATUSES } from './state.js';

/** Contexts that arrive at once. Each is written to the database as it arrives. */
export const UPLOADS_AT_ONCE = { total: 8, each: 2 };
const MIB = 1024 * 1024;

const tags = ['templates'];
const byId = Type.Object({ id: Field(Uuid, 'The id of the template.') });

const BuildQuery = Type.Object(
  {
    tag: Type.String({
      description: 'The name and the tag, such as `agent:1`. Default of the tag: `latest`.',
    }),
    dockerfile: Type.Optional(
      Type.String({ default: 'Dockerfile', description: 'The path of the Dockerfile in the context.' }),
    ),
    build_args: Type.Optional(
      Type.String({
        description: 'A JSON object with values for ARG, such as `{"VERSION":"2"}`. They are not secret.',
      }),
    ),
    target: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 128,
        description:
          'The name or the number of the stage that is built, with those that it needs. Default: the last one.',
      }),
    ),
    labels: Type.Optional(
      Type.String({
        description: 'A JSON object with the labels of the template and of the sandboxes of its build.',
      }),
    ),
    sandbox: Type.Optional(
      Type.String({
        description:
          'A JSON object with `resources`, `network`, `pull_policy`, `registry` and `security_profile` for the sandboxes of the build, as in a create.',
      }),
    ),
    cache: Type.Optional(
      Type.Boolean({
        default: true,
        description:
          'Whether steps whose results an earlier build has left are not run again. Default: true.',
      }),
    ),
    timeout_secs: Type.Optional(
      Type.Integer({
        format: 'int64',
        minimum: 1,
        maximum: TIMEOUT_SECS.max,
        default: TIMEOUT_SECS.default,
        description: `The most seconds of the build. Default: ${TIMEOUT_SECS.default}.`,
      }),
    ),
  },
  { additionalProperties: false },
);

export function templateRoutes(app: App, ctx: Shared, steps: PacedSteps): void {
  const enter = makeTransferSlots(ctx, {
    ...UPLOADS_AT_ONCE,
    waiting: { total: 200, each: 20 },
    isShared: true,
    message: 'too many contexts are being received: try again later',
    retryAfterSecs: 10,
  });
  const followers = new BuildFollowers(ctx.settings, steps);

  acceptFiles(app, (raw) => {
    raw.post(
      '/v1/templates',
      {
        config: { upload: true },
        schema: {
          operationId: 'create_template',
          scope: 'sandboxes:write',
          summary: 'Build a template from a Dockerfile',
          description: `The body is the context as an archive of tar, plain or packed by gzip, of at most ${MOST_CONTEXT_BYTES / MIB} MiB. Or it is a Dockerfile alone, or a JSON object such as \`{"from":"python:3.12","commands":["pip install numpy"]}\`. Any content-type, or none, is accepted. The build runs later, in sandboxes of the organization.`,
          tags,
          headers: WriteHeaders,
          querystring: BuildQuery,
          body: { content: { [OCTETS]: { schema: Bytes } } },
          response: answersToWrite(
            TemplateResponse,
            'invalid_sandbox_config',
            'label_not_allowed',
            'quota_exceeded',
            'template_not_found',
            'not_supported',
          ),
        },
      },
      async (request, reply) => {
        const body = request.body as Readable | undefined;
        try {
          await enter(request, reply);
          const writerWith = (digest: string) => writerOf(request, reply, digest);
          const step: Step = async (work) => steps.step(callerOf(request).orgId, work);
          return await createTemplate(contextOf(request), callerOf(request), writerWith, request.query, {
            body,
            step,
          });
        } finally {
          // Drains a refused body.
          body?.resume();
        }
      },
    );
  });

  app.get(
    '/v1/templates',
    {
      schema: {
        operationId: 'list_templates',
        scope: 'sandboxes:read',
        summary: 'List templates and their builds',
        description:
          'Returns one page of the templates, the newest first, with the builds that wait, run or have failed. One that failed is listed for 30 days.',
        tags,
        querystring: Type.Object(
          {
            ...PageQuery,
            name: Type.Optional(Type.String({ description: 'Only templates with this name.' })),
            tag: Type.Optional(Type.String({ description: 'Only templates with this tag.' })),
            status: Repeatable(Words([...TEMPLATE_STATUSES]), 'Only templates with one of these statuses.'),
          },
          { additionalProperties: false },
        ),
        response: answers(PaginatedTemplate),
      },
    },
    (request) => listTemplates(contextOf(request), callerOf(request), request.query),
  );

  app.get(
    '/v1/templates/:id',
    {
      schema: {
        operationId: 'get_template',
        scope: 'sandboxes:read',
        summary: 'Get a template',
        description: 'Returns the template, or the progress of its build.',
        tags,
        params: byId,
        response: answers(TemplateResponse, 'template_not_found'),
      },
    },
    (request) => showTemplate(contextOf(request), callerOf(request), request.params.id),
  );

  app.get(
    '/v1/templates/:id/log',
    {
      // A HEAD request would follow the log without a reader.
      exposeHeadRoute: false,
      schema: {
        operationId: 'follow_template_log',
        scope: 'sandboxes:read',
        summary: 'Follow the log of a build',
        description:
          'Sends server-sent events, from the first one. Each event `log` has `{"source","ts","text"}` as its data: `build` is of the service, `stdout` and `stderr` of the steps. The event `end` has the status of the build, and follows its end. A stream without it is not complete; continue with `last-event-id`.',
        tags,
        params: byId,
        headers: FollowHeaders,
        response: { ...answers(Type.Any(), 'template_not_found'), ...eventStream },
      },
    },
    async (request, reply) => {
      const lastEventId = request.headers['last-event-id'];
      const { id } = request.params;
      const events = await followers.follow(contextOf(request), callerOf(request), id, lastEventId, reply);
      return sendEvents(reply, events);
    },
  );

  app.delete(
    '/v1/templates/:id',
    {
      schema: {
        operationId: 'delete_template',
        scope: 'sandboxes:write',
        summary: 'Delete a template, or cancel its build',
        description:
          'A build that waits or runs is cancelled. A template goes with its log, and cannot be restored. Sandboxes that were made from it keep their disks.',
        tags,
        params: byId,
        headers: WriteHeaders,
        response: answersToWrite(MessageResponse, 'template_not_found'),
      },
    },
    (request, reply) => deleteTemplate(contextOf(request), writerOf(request, reply), request.params.id),
  );
}
