import { Type } from 'typebox';
import { callerOf } from '../access/caller.js';
import { contextOf } from '../access/request-context.js';
import { ApiError } from '../http/errors.js';
import { answers, type App } from '../http/route.js';
import { Field, MessageResponse, Uuid } from '../http/schema.js';
import { getWorkerOf } from './queries.js';

/**
 * Clients ask here for a channel into a sandbox. The answer says that there is none, instead of "not found". Upgrade
 * requests arrive here too.
 */
export function agentRoute(app: App): void {
  app.get(
    '/v1/sandboxes/:sandbox_id/agent',
    {
      schema: {
        operationId: 'open_agent',
        scope: 'sandboxes:write',
        summary: 'Open a channel into a sandbox: not supported',
        description:
          'Always refused with `not_supported` if the sandbox exists. Clients ask for it to run commands and copy files.',
        tags: ['sandboxes'],
        params: Type.Object({ sandbox_id: Field(Uuid, 'The id of the sandbox.') }),
        response: answers(MessageResponse, 'sandbox_not_found', 'not_supported'),
      },
    },
    async (request) => {
      const { orgId, access } = callerOf(request);
      const key = { id: request.params.sandbox_id, requiredLabels: access.labels };
      const place = await getWorkerOf(contextOf(request).pool, orgId, key);
      if (!place) throw new ApiError('sandbox_not_found');
      throw new ApiError(
        'not_supported',
        'this service has no channel into sandboxes: commands cannot be run in them, nor files copied',
      );
    },
  );
}
