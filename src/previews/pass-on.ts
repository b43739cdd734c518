import { ApiError } from '../http/errors.js';
import { NotRunningError } from '../sandboxes/ports/not-running.js';
import { PortRefusedError } from '../sandboxes/ports/guest-stream.js';
import type { Exchange } from './proxy/exchange.js';
import type { PreviewWaker } from './types.js';
import { asleep } from './wake/refusals.js';
import type { ServerWaits } from './wake/server-waits.js';

/**
 * Forwards a request, after the start of its sandbox where requests wake it. Throws an ApiError when no answer has
 * begun.
 */
export async function passOn(
  exchange: Exchange,
  waker: PreviewWaker | undefined,
  servers: ServerWaits,
  forward: () => Promise<void>,
): Promise<void> {
  const { target, response } = exchange;
  try {
    if (!waker) return await forward();
    if (target.wakes && target.status !== 'running') {
      return await wakeAndForward(exchange, waker, servers, forward);
    }
    try {
      return await forward();
    } catch (error) {
      if (response.headersSent) throw error;
      // Without a connection no byte of the body was read, so the request can be forwarded again.
      if (error instanceof PortRefusedError && target.wakes) {
        return await forwardLater(exchange, waker, servers, forward);
      }
      // The stored status was older than the end of the run, or requests do not start this sandbox. They may wait for
      // a start by the API.
      if (error instanceof NotRunningError) return await wakeAndForward(exchange, waker, servers, forward);
      throw error;
    }
  } catch (error) {
    throw refusalOf(error, target.wakes);
  }
}

async function wakeAndForward(
  exchange: Exchange,
  waker: PreviewWaker,
  servers: ServerWaits,
  forward: () => Promise<void>,
): Promise<void> {
  const { target, request, response, signal } = exchange;
  const patience = waker.patienceOf(request);
  if (patience === undefined) return waker.page(target, request, response);
  const gone = new AbortController();
  response.once('close', () => gone.abort());
  const until = performance.now() + patience;
  await waker.wait(target, { until, signal: AbortSignal.any([signal, gone.signal]), request });
  await forwardLater(exchange, waker, servers, forward);
}

/** Forwards when a server listens, or when its time after the start of the sandbox is over. */
async function forwardLater(
  { target, response, signal }: Exchange,
  waker: PreviewWaker,
  servers: ServerWaits,
  forward: () => Promise<void>,
): Promise<void> {
  await servers.listens(target, await waker.listensUntil(target));
  if (signal.aborted) {
    const message = 'the preview has ended: ask for a new one';
    throw new ApiError('preview_access_required', message, null, {
      headers: { 'www-authenticate': 'Bearer' },
    });
  }
  if (!response.destroyed) await forward();
}

function refusalOf(error: unknown, wakes: boolean): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof NotRunningError) return asleep(wakes ? 'stopped' : 'not_allowed');
  if (error instanceof PortRefusedError) {
    return new ApiError('no_answer_of_sandbox', error.message, null, { cause: error });
  }
  return new ApiError('no_answer_of_sandbox', undefined, null, { cause: error });
}
