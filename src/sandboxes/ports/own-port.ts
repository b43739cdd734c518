import type { Duplex } from 'node:stream';
import type { WorkerContext } from '../../context.js';
import type { PortPlace } from '../../engine/runtime.js';
import { getWorkerOf } from '../queries.js';
import { MovedAwayError } from '../sessions/forward.js';
import { connectHere } from './connect-here.js';
import { openGuestStream } from './guest-stream.js';
import { NotRunningError } from './not-running.js';

/** `openPort` of a sandbox on the engine of this process. Throws MovedAwayError for another one. */
export async function openOwnPort(
  ctx: WorkerContext,
  place: PortPlace,
  signal: AbortSignal,
): Promise<Duplex> {
  // A request that another process has passed on is not passed on again.
  if ((await workerOf(ctx, place)) !== ctx.runtime.engineId) throw new MovedAwayError();
  return openHere(ctx, place, signal);
}

/** The engine of a running sandbox. Throws NotRunningError. */
export async function workerOf(ctx: WorkerContext, { orgId, sandboxId }: PortPlace): Promise<string> {
  const sandbox = await getWorkerOf(ctx.pool, orgId, { id: sandboxId });
  if (sandbox?.status !== 'running') throw new NotRunningError(sandbox?.status);
  if (sandbox.worker_id === null) throw new MovedAwayError();
  return sandbox.worker_id;
}

export async function openHere(ctx: WorkerContext, place: PortPlace, signal: AbortSignal): Promise<Duplex> {
  const { sandboxId, port } = place;
  const direct = await connectHere(ctx, place, signal);
  if (direct) {
    direct.once(
      'close',
      ctx.touches.watch(sandboxId, () => direct.bytesRead + direct.bytesWritten),
    );
    return direct;
  }
  const { guest, release } = await ctx.runtime.openGuest(sandboxId);
  try {
    const touch = () => ctx.touches.touch(sandboxId);
    const stream = await openGuestStream(guest, { port, signal, touch });
    return stream.once('close', release);
  } catch (error) {
    release();
    throw error;
  }
}
