import type { FastifyReply, FastifyRequest } from 'fastify';
import { callerOf } from '../../access/caller.js';
import { contextOf } from '../../access/request-context.js';
import { onRevocation } from '../../access/revocation-watch.js';
import type { WorkerContext } from '../../context.js';
import { callBack } from '../../http/call-back.js';
import { clientAddressOf } from '../../http/client-address.js';
import { ApiError } from '../../http/errors.js';
import { forward } from '../../http/forward.js';
import { FORWARDED_HEADER } from '../../http/forwarded.js';
import type { App } from '../../http/route.js';
import { readWorkerAddress } from '../../workers/queries.js';
import { getWorkerOf, type SandboxKey } from '../queries.js';

declare module 'fastify' {
  interface FastifyContextConfig {
    /**
     * The process that acts on the engine of the sandbox serves this route. Default: true for routes of the scope
     * `sandboxes:exec`.
     */
    onEngine?: boolean;
    /** The process that has the lease on the engine of the sandbox serves this route, from its memory. */
    onWorker?: boolean;
  }
}

const AGAIN = { 'retry-after': '1', connection: 'close' };

/** Forwards requests that need the engine of a sandbox to the process that acts on it, before their body is read. */
export function forwardToEngines(app: App, ctx: WorkerContext): void {
  app.addHook('onRequest', (request, reply, done) => {
    const { config, schema } = request.routeOptions;
    const onWorker = config.onWorker === true;
    if (!onWorker && !(config.onEngine ?? schema?.scope === 'sandboxes:exec')) return done();
    void callBack(done, forwardElsewhere(request, reply, onWorker));
  });

  /** Returns false when another process answers. */
  async function forwardElsewhere(
    request: FastifyRequest,
    reply: FastifyReply,
    onWorker: boolean,
  ): Promise<boolean> {
    const { orgId, access } = callerOf(request);
    const { labels: requiredLabels } = access;
    const sandbox = await getWorkerOf(contextOf(request).pool, orgId, { ...keyOf(request), requiredLabels });
    const target = sandbox?.worker_id ?? null;
    if (target === null || (target === ownEngine(ctx) && (!onWorker || ctx.engineLease.isHeld())))
      return true;
    if (request.forwardedFor !== null) throw new MovedAwayError();
    await forwardTo(ctx, target, request, reply);
    return false;
  }
}

/** The URL of the process that acts on an engine. Throws ApiError when there is none for this process. */
export async function addressOfWorker(
  { pool, peer }: Pick<WorkerContext, 'pool' | 'peer'>,
  workerId: string,
): Promise<string> {
  const worker = await readWorkerAddress(pool, workerId);
  if (!worker?.alive || worker.address === null) throw unavailable('the worker of the sandbox is away');
  if (worker.address_place !== null && worker.address_place !== peer.place) {
    throw new ApiError(
      'not_supported',
      'the sandbox runs on another machine: the operator must start the service there with --advertise-url',
      { worker_id: workerId },
    );
  }
  return worker.address;
}

/** To the process that acts on the engine `target`. */
export async function forwardTo(
  ctx: WorkerContext,
  target: string,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<void> {
  const { peer, stopping, log } = ctx;
  const address = await addressOfWorker(ctx, target);
  // The other process authenticates the caller too. It ends the response when the key is revoked, and records the
  // reason.
  onRevocation(reply, () => undefined);
  const headers = {
    [FORWARDED_HEADER]: peer.seal.seal(request.raw, clientAddressOf(request), target),
    'x-request-id': request.id,
    ...(request.span ? { traceparent: request.span.traceparent } : {}),
  };
  try {
    await forward(request, reply, { url: address, headers, stopping, trust: peer.trust });
  } catch (error) {
    throw unreachable(log, error, { workerId: target, address });
  }
}

/** Undefined: the engine has not answered yet. */
function ownEngine({ runtime }: Pick<WorkerContext, 'runtime'>): string | undefined {
  return runtime.engine?.state === 'connecting' ? undefined : runtime.engineId;
}

/** Parameters are otherwise checked after the body has been read. */
function keyOf(request: FastifyRequest): SandboxKey {
  request.getValidationFunction('params')?.(request.params);
  const { sandbox_id: id, name } = request.params as { sandbox_id: string; name?: string };
  return name === undefined ? { id } : { name };
}

/** The sandbox has just moved to another worker. */
export class MovedAwayError extends ApiError {
  constructor() {
    super('not_ready', 'the sandbox is moving to another worker: try again', null, { headers: AGAIN });
  }
}

/** Only the log has the address. */
export function unreachable(
  log: WorkerContext['log'],
  error: unknown,
  to: { workerId: string; address: string },
): ApiError {
  log.warn({ err: error, ...to }, 'a request could not be forwarded');
  return unavailable('the worker of the sandbox cannot be reached');
}

function unavailable(message: string): ApiError {
  return new ApiError('not_ready', `${message}: try again`, null, { headers: AGAIN });
}
