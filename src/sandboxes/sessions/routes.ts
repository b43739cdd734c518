import { Type } from 'typebox';
import { callerOf } from '../../access/caller.js';
import { contextOf } from '../../access/request-context.js';
import { answers, answersToWrite, type App } from '../../http/route.js';
import { Field, MessageResponse, PageQuery, Uuid } from '../../http/schema.js';
import { writerOf } from '../../idempotency/keyed.js';
import { WriteHeaders } from '../../idempotency/schema.js';
import { ADDRESSES, sandboxKeyOf } from './address.js';
import { end } from './end.js';
import { listSessions } from './list.js';
import { PaginatedSandboxSession } from './schema.js';

/**
 * The open sessions of a sandbox, and their ends by other callers. The database has them, so any process serves these
 * routes.
 */
export function sessionRoutes(app: App): void {
  const config = { onEngine: false };
  const tags = ['sandboxes'];
  const scope = 'sandboxes:exec' as const;
  for (const { base, suffix, params } of ADDRESSES) {
    app.get(
      `${base}/sessions`,
      {
        config,
        schema: {
          operationId: `list_sandbox_sessions${suffix}`,
          scope,
          summary: 'List the open sessions in a sandbox',
          description:
            'Returns one page of the commands, terminals, connections and file operations that callers have open, the oldest first.',
          tags,
          params,
          querystring: Type.Object(PageQuery, { additionalProperties: false }),
          response: answers(PaginatedSandboxSession, 'sandbox_not_found'),
        },
      },
      (request) =>
        listSessions(
          contextOf(request),
          callerOf(request).orgId,
          { ...sandboxKeyOf(request), requiredLabels: callerOf(request).access.labels },
          request.query,
        ),
    );

    app.delete(
      `${base}/sessions/:session_id`,
      {
        config,
        schema: {
          operationId: `end_sandbox_session${suffix}`,
          scope,
          summary: 'End a session in a sandbox',
          description:
            'Ends a command, a terminal or a connection of any caller, also of another key. The other sessions of its connection stay open, unless it is a session of files.',
          tags,
          params: Type.Object({
            ...params.properties,
            session_id: Field(Uuid, 'The id of the session.'),
          }),
          headers: WriteHeaders,
          response: answersToWrite(MessageResponse, 'sandbox_not_found', 'session_not_found'),
        },
      },
      (request, reply) => {
        const { session_id: sessionId } = request.params;
        const caller = writerOf(request, reply);
        const key = { ...sandboxKeyOf(request), requiredLabels: caller.access.labels };
        return end(contextOf(request), caller, key, sessionId);
      },
    );
  }
}
