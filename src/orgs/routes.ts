import { callerOf } from '../access/caller.js';
import { contextOf } from '../access/request-context.js';
import { ApiError } from '../http/errors.js';
import { answers, type App } from '../http/route.js';
import { shortInstant } from '../lib/instant.js';
import { getOrg } from './queries.js';
import { OrgWithRole } from './schema.js';

export function orgRoutes(app: App): void {
  app.get(
    '/v1/me/org',
    {
      schema: {
        operationId: 'get_org',
        scope: 'any',
        summary: 'Get the organization of the caller',
        description:
          'Returns the organization of the key or the session, with the role of the member. The role of a key of the organization is always `owner`; its scopes say what it may do.',
        tags: ['organization'],
        response: answers(OrgWithRole, 'org_not_found'),
      },
    },
    async (request) => {
      const { orgId, key, member } = callerOf(request);
      const org = await getOrg(contextOf(request).pool, orgId);
      if (!org) throw new ApiError('org_not_found');
      const { created_at, updated_at, ...identity } = org;
      return {
        ...identity,
        mfa_required: false,
        role: member?.role ?? key?.member?.role ?? ('owner' as const),
        runtime: contextOf(request).runtime.name,
        created_at: shortInstant(created_at),
        updated_at: shortInstant(updated_at),
      };
    },
  );
}
