import type { StreamTurns } from '../../fairness/stream-turns.js';
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { Type } from 'typebox';
import { WebSocket } from 'ws';
import type { WorkerContext } from '../../context.js';
import type { PortPlace } from '../../engine/runtime.js';
import { ApiError } from '../../http/errors.js';
import { verificationOf } from '../../http/forward.js';
import { FORWARDED_HEADER, readForwarded } from '../../http/forwarded.js';
import type { App } from '../../http/route.js';
import { Uuid } from '../../http/schema.js';
import { acceptWebSocket, wantsWebSocket } from '../../http/upgrade.js';
import { addressOfWorker, unreachable } from '../sessions/forward.js';
import { openOwnPort } from './own-port.js';
import { openPortSocket, servePort } from './port-socket.js';

/** Longer than a connection in the sandbox may take to open. */
const HANDSHAKE_MS = 10_000;

/** Opens a port of a sandbox on the engine of the process `workerId`. */
export async function openRemotePort(
  ctx: WorkerContext,
  workerId: string,
  { orgId, sandboxId, port }: PortPlace,
  signal: AbortSignal,
): Promise<Duplex> {
  const address = await addressOfWorker(ctx, workerId);
  const url = `/internal/orgs/${orgId}/sandboxes/${sandboxId}/ports/${port}`;
  const request = { method: 'GET', url, headers: {} } as IncomingMessage;
  // No client is named: the process that took the request has judged it.
  const headers = { [FORWARDED_HEADER]: ctx.peer.seal.seal(request, '', workerId) };
  const target = new URL(url, address);
  const socket = new WebSocket(target, {
    headers,
    ...verificationOf(target, ctx.peer.trust),
    perMessageDeflate: false,
    handshakeTimeout: HANDSHAKE_MS,
  });
  let isConnected = false;
  socket.once('open', () => (isConnected = true));
  try {
    return await openPortSocket(socket, { port, signal });
  } catch (error) {
    if (isConnected || signal.aborted) throw error;
    throw unreachable(ctx.log, error, { workerId, address });
  }
}

/** The other end of `openRemotePort`. Only processes of the service can seal a request to it. */
export function tunnelRoute(app: App, ctx: WorkerContext, turns: StreamTurns): void {
  readForwarded(app, ctx.peer.seal, () => ctx.runtime.engineId);
  app.get(
    '/internal/orgs/:org_id/sandboxes/:sandbox_id/ports/:port',
    {
      exposeHeadRoute: false,
      schema: {
        hide: true,
        params: Type.Object({
          org_id: Uuid,
          sandbox_id: Uuid,
          port: Type.Integer({ minimum: 1, maximum: 65_535 }),
        }),
      },
    },
    (request, reply) => {
      if (request.forwardedFor === null || !wantsWebSocket(request.raw)) {
        throw new ApiError('route_not_found');
      }
      const { org_id: orgId, sandbox_id: sandboxId, port } = request.params;
      void reply.hijack();
      acceptWebSocket(request.raw, (socket) => {
        const over = new AbortController();
        const end = () => over.abort();
        ctx.stopping.addEventListener('abort', end, { once: true, signal: over.signal });
        socket.on('close', end);
        if (ctx.stopping.aborted) end();
        const open = () => openOwnPort(ctx, { orgId, sandboxId, port }, over.signal);
        void servePort(socket, { port, open, moved: turns.of(orgId) });
      });
    },
  );
}
