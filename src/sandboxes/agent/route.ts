import { Type } from 'typebox';
import type { WebSocket } from 'ws';
import type { Logger } from 'pino';
import { callerOf } from '../../access/caller.js';
import { ApiError } from '../../http/errors.js';
import { answers, type App } from '../../http/route.js';
import { Field, MessageResponse, Uuid } from '../../http/schema.js';
import { acceptWebSocket, wantsWebSocket } from '../../http/upgrade.js';
import { Slots } from '../../fairness/slots.js';
import type { PacedSteps } from '../../fairness/paced-steps.js';
import { ENTRANCE_REFUSALS, type Entrance, type Visit } from '../sessions/entrance.js';
import { AgentChannel, type Pipe } from './channel.js';
import { clientDefaultsOf } from './sdk-defaults.js';

const MIB = 1024 * 1024;
/** The memory of all channels. */
export const MEMORY = { total: 256 * MIB, each: 128 * MIB, base: 8 * MIB };

/** The channel into a sandbox that the official clients use. */
export function agentRoute(app: App, entrance: Entrance, steps: PacedSteps, log: Logger): void {
  const memory = new Slots(MEMORY);
  app.get(
    '/v1/sandboxes/:sandbox_id/agent',
    {
      exposeHeadRoute: false,
      schema: {
        operationId: 'open_sandbox_agent',
        scope: 'sandboxes:exec',
        summary: 'Open a channel into a sandbox',
        description:
          'A WebSocket that carries commands, terminals, files and TCP connections in the protocol of the official clients.',
        tags: ['sandboxes'],
        params: Type.Object({ sandbox_id: Field(Uuid, 'The id of the sandbox.') }),
        response: answers(MessageResponse, ...ENTRANCE_REFUSALS),
      },
    },
    async (request, reply) => {
      const { orgId } = callerOf(request);
      const visit = await entrance.enter(request, reply, { id: request.params.sandbox_id });
      if (!wantsWebSocket(request.raw)) {
        throw new ApiError('invalid_request', 'this address takes a WebSocket: send an upgrade request');
      }
      const defaults = await clientDefaultsOf(request, visit.sandboxId);
      void reply.hijack();
      let channel: AgentChannel | undefined;
      acceptWebSocket(
        request.raw,
        (socket) => {
          channel = new AgentChannel(visit.guest, pipeOf(socket), visit.recorder, log, defaults, {
            work: (work) => steps.run(orgId, work),
            hold: (bytes) => memory.add(orgId, bytes),
            isOverBudget: () => memory.isOver(orgId),
          });
          serve(socket, visit, channel);
        },
        (bytes) => channel?.arrived(bytes),
      );
    },
  );
}

function serve(socket: WebSocket, { ended, leave }: Visit, channel: AgentChannel): void {
  // Commands that end with the sandbox are told to the client first.
  const end = () => setImmediate(() => channel.close(String(ended.reason)));
  ended.addEventListener('abort', end, { once: true });
  if (ended.aborted) end();
  socket.on('close', leave);
  socket.on('message', (data: Buffer, isBinary: boolean) => {
    if (isBinary) channel.receive(data);
  });
}

function pipeOf(socket: WebSocket): Pipe {
  return {
    send: (data, sent) => socket.send(data, { binary: true }, sent),
    pause: () => socket.pause(),
    resume: () => socket.resume(),
    close: () => socket.close(),
    cut: () => socket.terminate(),
  };
}
