import { ApiError } from '../http/errors.js';
import { sleep } from '../lib/sleep.js';
import { NotRunningError } from '../sandboxes/ports/open-port.js';
import { PortRefusedError } from '../sandboxes/ports/guest-stream.js';
import type { Exchange } from './proxy/exchange.js';
import type { Upstreams } from './proxy/upstreams.js';
import type { PreviewWaker } from './types.js';

/** How long a server may take to listen after the start of its sandbox. */
const LISTEN_MS = 15_000;
const FIRST_PAUSE_MS = 25;
const LONGEST_PAUSE_MS = 250;

/**
 * Forwards a request, after the start of its sandbox where the preview wakes it. Throws an ApiError when no answer has
 * begun.
 */
export async function passOn(
  exchange: Exchange,
  waker: PreviewWaker | undefined,
  upstreams: Upstreams,
  forward: () => Promise<void>,
): Promise<void> {
  const { target } = exchange;
  const wakes = waker !== undefined && target.wakes;
  try {
    if (wakes && target.status !== 'running')
      return await wakeAndForward(exchange, waker, upstreams, forward);
    return await forward();
  } catch (error) {
    // The stored status was older than the end of the run. No byte of the body is read without a connection.
    if (wakes && error instanceof NotRunningError && !exchange.response.headersSent) {
      return wakeAndForward(exchange, waker, upstreams, forward).catch((later: unknown) => {
        throw refusalOf(later);
      });
    }
    throw refusalOf(error);
  }
}

async function wakeAndForward(
  { target, request, response, signal }: Exchange,
  waker: PreviewWaker,
  upstreams: Upstreams,
  forward: () => Promise<void>,
): Promise<void> {
  const patience = waker.patienceOf(request);
  if (patience === undefined) return waker.page(target, request, response);
  const gone = new AbortController();
  response.once('close', () => gone.abort());
  const until = performance.now() + patience;
  await waker.wait(target, { until, signal: AbortSignal.any([signal, gone.signal]) });
  for (let pause = FIRST_PAUSE_MS; !gone.signal.aborted; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
    const isOpen = await tryPort(upstreams, target, performance.now() < until + LISTEN_MS);
    if (isOpen) break;
    await sleep(pause, gone.signal);
  }
  if (!gone.signal.aborted) await forward();
}

async function tryPort(upstreams: Upstreams, target: Exchange['target'], hasTime: boolean): Promise<boolean> {
  try {
    (await upstreams.connect(target)).destroy();
    return true;
  } catch (error) {
    if (error instanceof PortRefusedError && hasTime) return false;
    throw error;
  }
}

function refusalOf(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof NotRunningError) {
    return new ApiError('not_ready', error.message, null, { headers: { 'retry-after': '5' }, cause: error });
  }
  if (error instanceof PortRefusedError) {
    return new ApiError('no_answer_of_sandbox', error.message, null, { cause: error });
  }
  return new ApiError('no_answer_of_sandbox', undefined, null, { cause: error });
}
