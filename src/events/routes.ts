import { Type } from 'typebox';
import type { Context } from '../context.js';
import { callerOf } from '../http/auth.js';
import { ApiError } from '../http/errors.js';
import { answers, type App } from '../http/route.js';
import { PageQuery, Repeatable, Uuid, Words } from '../http/schema.js';
import { list, presentEvent } from './list.js';
import { getEvent } from './queries.js';
import { EventResponse, PaginatedEventResponse } from './schema.js';

const tags = ['events'];
const word = Type.String({ minLength: 1, maxLength: 200 });
const excludes = 'May be repeated; a value that starts with `!` excludes.';
const KINDS = ['user', 'api_key', 'system', 'ssh_key', '!user', '!api_key', '!system', '!ssh_key'] as const;

const query = Type.Object(
  {
    event_type: Repeatable(word, `Such as \`api_key_created\`. ${excludes}`),
    category: Repeatable(word, `Such as \`sandbox\`. ${excludes}`),
    actor_kind: Repeatable(Words([...KINDS]), excludes),
    actor_id: Repeatable(word, `Id of a user or key, or code of the system. ${excludes}`),
    resource_id: Repeatable(word, `Id of a sandbox, volume or key. ${excludes}`),
    since: Type.Optional(Type.String({ description: 'RFC 3339 date-time; events at or after it.' })),
    until: Type.Optional(Type.String({ description: 'RFC 3339 date-time; events at or before it.' })),
    ...PageQuery,
  },
  { additionalProperties: false },
);

export function eventRoutes(app: App, ctx: Context): void {
  app.get(
    '/v1/events',
    {
      schema: {
        operationId: 'list_events',
        scope: 'events:read',
        summary: 'List audit events, newest first',
        tags,
        querystring: query,
        response: answers(PaginatedEventResponse),
      },
    },
    (request) => list(ctx, callerOf(request).orgId, request.query),
  );

  app.get(
    '/v1/events/:event_id',
    {
      schema: {
        operationId: 'get_event',
        scope: 'events:read',
        summary: 'Get an audit event',
        tags,
        params: Type.Object({ event_id: Uuid }),
        response: answers(EventResponse, 'sandbox_not_found'),
      },
    },
    async (request) => {
      const row = await getEvent(ctx.pool, callerOf(request).orgId, request.params.event_id);
      if (!row) throw new ApiError('sandbox_not_found');
      return presentEvent(row);
    },
  );
}
