import { Type } from 'typebox';
import { callerOf } from '../../access/caller.js';
import { contextOf } from '../../access/request-context.js';
import { ApiError } from '../../http/errors.js';
import { answers, answersToBody, type App } from '../../http/route.js';
import { Field, MessageResponse, Uuid } from '../../http/schema.js';
import { acceptWebSocket, wantsWebSocket } from '../../http/upgrade.js';
import { ADDRESSES, sandboxKeyOf } from '../sessions/address.js';
import { ENTRANCE_REFUSALS, type Entrance } from '../sessions/entrance.js';
import { acceptEnvMap } from '../../spec/env-schema.js';
import { TerminalRequest, TerminalTicket } from './schema.js';
import { serve } from './serve.js';
import { makeTicket, useTicket } from './ticket.js';

/** Terminals for browsers, which cannot send an API key with a WebSocket. */
export function terminalRoutes(app: App, entrance: Entrance): void {
  for (const { base, suffix, params } of ADDRESSES) {
    app.post(
      `${base}/terminal-tickets`,
      {
        preValidation: acceptEnvMap,
        schema: {
          operationId: `create_sandbox_terminal_ticket${suffix}`,
          scope: 'sandboxes:exec',
          summary: 'Make a ticket that opens a terminal in a browser',
          description:
            'The ticket opens one terminal within a minute. The terminal ends when the key that made the ticket is revoked or expires.',
          tags: ['sandboxes'],
          params,
          body: TerminalRequest,
          response: answersToBody(TerminalTicket, ...ENTRANCE_REFUSALS),
        },
      },
      async (request, reply) => {
        const { sandboxId } = await entrance.enter(request, reply, sandboxKeyOf(request));
        return makeTicket(contextOf(request), callerOf(request), sandboxId, request.body, request.session);
      },
    );
  }

  app.get(
    '/v1/sandboxes/:sandbox_id/terminal',
    {
      exposeHeadRoute: false,
      config: { tickets: true },
      schema: {
        operationId: 'open_sandbox_terminal',
        scope: 'sandboxes:exec',
        summary: 'Open a terminal in a sandbox',
        description:
          'A WebSocket for browsers. The client offers the subprotocols `sandkeep.terminal.v1` and `ticket.<ticket>`. Binary messages are bytes of the terminal. The client sends `{"type":"resize","rows","cols"}` as text, the server `{"type":"exited","exit_code"}` or `{"type":"failed","error"}`.',
        tags: ['sandboxes'],
        params: Type.Object({ sandbox_id: Field(Uuid, 'The id of the sandbox.') }),
        response: answers(MessageResponse, ...ENTRANCE_REFUSALS, 'invalid_ticket', 'origin_not_allowed'),
      },
    },
    async (request, reply) => {
      const { sandbox_id: sandboxId } = request.params;
      const visit = await entrance.enter(request, reply, { id: sandboxId });
      const { ticketHash } = request;
      if (!ticketHash || !wantsWebSocket(request.raw)) {
        throw new ApiError('invalid_request', 'this address takes a WebSocket with a ticket as subprotocol');
      }
      const terminal = await useTicket(contextOf(request), callerOf(request).orgId, sandboxId, ticketHash);
      void reply.hijack();
      acceptWebSocket(request.raw, (socket) => {
        serve(socket, visit, terminal).catch((error: unknown) =>
          request.log.error({ err: error }, 'a terminal could not be served'),
        );
      });
    },
  );
}
