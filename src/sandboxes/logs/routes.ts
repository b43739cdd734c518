import { Type } from 'typebox';
import { callerOf } from '../../access/caller.js';
import { contextOf } from '../../access/request-context.js';
import type { Shared } from '../../context.js';
import { badParameter } from '../../http/errors.js';
import { answers, type App } from '../../http/route.js';
import { Field, Uuid } from '../../http/schema.js';
import { eventStream, FollowHeaders, sendEvents } from '../../http/sse.js';
import type { PacedSteps } from '../../fairness/paced-steps.js';
import { LOG_SOURCES, type LogSource } from '../../engine/runtime.js';
import type { SandboxKey } from '../queries.js';
import { decodeCursor } from './cursor.js';
import { LogFollowers } from './read.js';

const DEFAULT_SOURCES = 'stdout,stderr,output';

const querystring = Type.Object(
  {
    sources: Type.Optional(
      Type.String({
        description: `The sources of lines, separated by commas, of ${LOG_SOURCES.join(', ')}. Default: \`${DEFAULT_SOURCES}\`.`,
      }),
    ),
    mask_secrets: Type.Optional(
      Type.Boolean({
        default: false,
        description:
          'Whether `***` replaces the values of secret variables in the lines. Values below 4 bytes stay.',
      }),
    ),
  },
  { additionalProperties: false },
);

export function logRoutes(app: App, ctx: Shared, steps: PacedSteps): void {
  const followers = new LogFollowers(ctx.settings, steps);

  addressed(
    '/v1/sandboxes/:sandbox_id/logs',
    'follow_sandbox_logs',
    Type.Object({ sandbox_id: Field(Uuid, 'The id of the sandbox.') }),
    (params) => ({
      id: (params as { sandbox_id: string }).sandbox_id,
    }),
  );
  addressed(
    '/v1/sandboxes/by-name/:name/logs',
    'follow_sandbox_logs_by_name',
    Type.Object({ name: Type.String({ description: 'The name of the sandbox.' }) }),
    (params) => ({ name: (params as { name: string }).name }),
  );

  function addressed(
    path: string,
    operationId: string,
    params: ReturnType<typeof Type.Object>,
    keyOf: (params: unknown) => SandboxKey,
  ): void {
    app.get(
      path,
      {
        // A HEAD request would follow the log without a reader.
        exposeHeadRoute: false,
        config: { onEngine: true },
        schema: {
          operationId,
          scope: 'sandboxes:read',
          summary: 'Follow the log of a sandbox',
          description:
            'Sends server-sent events, from the first line that is kept. Each event `log` has `{"source","ts","text"}` as its data: a line, or a part of a line above 16 KiB. The event `end` follows the end of the run. A stream without it is not complete; continue with `last-event-id`.',
          tags: ['sandboxes'],
          params,
          querystring,
          headers: FollowHeaders,
          response: {
            ...answers(Type.Any(), 'sandbox_not_found', 'not_supported'),
            ...eventStream,
          },
        },
      },
      async (request, reply) => {
        const query = {
          sources: readSources(request.query.sources),
          after: decodeCursor(request.headers['last-event-id']),
        };
        const { orgId, access } = callerOf(request);
        const key = { ...keyOf(request.params), requiredLabels: access.labels };
        const masks = request.query.mask_secrets === true;
        const events = await followers.follow(contextOf(request), orgId, key, { ...query, masks }, reply);
        return sendEvents(reply, events);
      },
    );
  }
}

function readSources(text = DEFAULT_SOURCES): Set<LogSource> {
  const names = text.split(',');
  const unknown = names.find((name) => !(LOG_SOURCES as readonly string[]).includes(name));
  if (unknown !== undefined) {
    throw badParameter('sources', `sources must be a comma-separated list of ${LOG_SOURCES.join(', ')}`);
  }
  return new Set(names as LogSource[]);
}
