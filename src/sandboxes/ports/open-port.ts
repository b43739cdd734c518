import type { Duplex } from 'node:stream';
import type { WorkerContext } from '../../context.js';
import type { PortPlace } from '../../engine/runtime.js';
import { openHere, workerOf } from './own-port.js';
import { openRemotePort } from './tunnel.js';

/**
 * Opens a stream of bytes to a TCP port of a running sandbox, on its loopback addresses, also where another process has
 * its engine. Throws NotRunningError, PortRefusedError, or an ApiError. `signal` ends it. The caller has checked the
 * rights.
 */
export async function openPort(ctx: WorkerContext, place: PortPlace, signal: AbortSignal): Promise<Duplex> {
  const worker = await workerOf(ctx, place);
  if (worker === ctx.runtime.engineId) return openHere(ctx, place, signal);
  return openRemotePort(ctx, worker, place, signal);
}
