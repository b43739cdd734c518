import type { FastifyBaseLogger } from 'fastify';
import type { Duplex } from 'node:stream';
import { Type } from 'typebox';
import type { WebSocket } from 'ws';
import { callerOf } from '../../access/caller.js';
import type { WorkerContext } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import type { StreamTurns } from '../../fairness/stream-turns.js';
import { answers, type App } from '../../http/route.js';
import { MessageResponse } from '../../http/schema.js';
import { acceptWebSocket, wantsWebSocket } from '../../http/upgrade.js';
import { ADDRESSES, sandboxKeyOf } from '../sessions/address.js';
import { ENTRANCE_REFUSALS, type Entrance, type Visit } from '../sessions/entrance.js';
import type { SessionRecord } from '../sessions/recorder.js';
import { connectHere } from './connect-here.js';
import { openGuestStream } from './guest-stream.js';
import { servePort } from './port-socket.js';

/** A TCP port of a sandbox as a WebSocket, for `sandkeep port-forward`. */
export function portRoutes(app: App, ctx: WorkerContext, entrance: Entrance, turns: StreamTurns): void {
  for (const { base, suffix, params } of ADDRESSES) {
    app.get(
      `${base}/ports/:port/connect`,
      {
        exposeHeadRoute: false,
        schema: {
          operationId: `connect_sandbox_port${suffix}`,
          scope: 'sandboxes:exec',
          summary: 'Connect to a TCP port of a sandbox',
          description:
            'A WebSocket that carries one connection to a port on the loopback addresses of the sandbox. Binary messages are bytes in both directions. The server sends the text `open` when the port is connected. Either side sends the text `end` when it sends nothing more. Close codes: 4001 nothing listens on the port, 4002 the sandbox does not run, 4004 it has too many open connections and commands, 4000 another failure.',
          tags: ['sandboxes'],
          params: Type.Object({
            ...params.properties,
            port: Type.Integer({ minimum: 1, maximum: 65_535, description: 'The port in the sandbox.' }),
          }),
          response: answers(MessageResponse, ...ENTRANCE_REFUSALS),
        },
      },
      async (request, reply) => {
        const { port } = request.params;
        const visit = await entrance.enter(request, reply, sandboxKeyOf(request));
        if (!wantsWebSocket(request.raw)) {
          throw new ApiError('invalid_request', 'this address takes a WebSocket: send an upgrade request');
        }
        const args = [`127.0.0.1:${port}`];
        const record = await visit.recorder
          .open({ kind: 'tcp', user: null, args })
          .catch((error: unknown) => {
            visit.leave();
            throw error;
          });
        void reply.hijack();
        const place = { orgId: callerOf(request).orgId, sandboxId: visit.sandboxId, port };
        const open = async (signal: AbortSignal) =>
          (await connectHere(ctx, place, signal)) ??
          // The record counts the bytes, and each count is an activity.
          openGuestStream(visit.guest, { port, signal, touch: () => undefined });
        acceptWebSocket(
          request.raw,
          (socket) =>
            void serve({ socket, port, open, moved: turns.of(place.orgId), visit, record, log: request.log }),
        );
      },
    );
  }
}

interface Connecting {
  socket: WebSocket;
  port: number;
  open: (signal: AbortSignal) => Promise<Duplex>;
  moved: ReturnType<StreamTurns['of']>;
  visit: Visit;
  record: SessionRecord;
  log: FastifyBaseLogger;
}

async function serve({
  socket,
  port,
  open,
  moved,
  visit: { ended, leave },
  record,
  log,
}: Connecting): Promise<void> {
  const over = new AbortController();
  const endFor = (reason: string) => over.abort(new ApiError('session_ended', reason));
  const visitEnded = () => endFor(String(ended.reason));
  ended.addEventListener('abort', visitEnded, { once: true });
  if (ended.aborted) visitEnded();
  record.ended.addEventListener('abort', () => endFor('session_ended'), { once: true });
  if (record.ended.aborted) endFor('session_ended');
  socket.on('close', () => endFor('client_left'));
  const failure = await servePort(socket, {
    port,
    open: async () => open(over.signal),
    moved,
    counts: record,
  });
  if (failure !== null) log.debug({ err: failure }, 'a connection to a port has failed');
  const cause = over.signal.aborted ? (over.signal.reason as ApiError).message : 'failed';
  record.end({ exitCode: null, reason: failure === null ? 'closed' : cause });
  leave();
}
