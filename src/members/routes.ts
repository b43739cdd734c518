import { Type } from 'typebox';
import { callerOf } from '../access/caller.js';
import { contextOf } from '../access/request-context.js';
import { answers, type App } from '../http/route.js';
import { PageQuery } from '../http/schema.js';
import { listMembers } from './list.js';
import { PaginatedMemberResponse } from './schema.js';

export function memberRoutes(app: App): void {
  app.get(
    '/v1/members',
    {
      schema: {
        operationId: 'list_members',
        scope: 'org:admin',
        summary: 'List the members of the organization, oldest first',
        description:
          'Returns one page of the people who belong to the organization. The operator adds and removes members.',
        tags: ['organization'],
        querystring: Type.Object(PageQuery, { additionalProperties: false }),
        response: answers(PaginatedMemberResponse),
      },
    },
    (request) => listMembers(contextOf(request), callerOf(request).orgId, request.query),
  );
}
