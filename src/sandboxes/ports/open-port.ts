import type { Duplex } from 'node:stream';
import type { WorkerContext } from '../../context.js';
import { getWorkerOf } from '../queries.js';
import { MovedAwayError } from '../sessions/forward.js';
import { openGuestStream } from './guest-stream.js';

export interface PortPlace {
  orgId: string;
  sandboxId: string;
  port: number;
}

/** The sandbox does not run. Undefined: it is not there. */
export class NotRunningError extends Error {
  constructor(readonly status: string | undefined) {
    super(status === undefined ? 'there is no such sandbox' : `the sandbox is ${status}: start it first`);
  }
}

/**
 * Opens a stream of bytes to a TCP port of a running sandbox, on its loopback addresses. Throws NotRunningError or
 * PortRefusedError. `signal` ends it. The caller has checked the rights.
 */
export async function openPort(
  ctx: WorkerContext,
  { orgId, sandboxId, port }: PortPlace,
  signal: AbortSignal,
): Promise<Duplex> {
  const sandbox = await getWorkerOf(ctx.pool, orgId, { id: sandboxId });
  if (sandbox?.status !== 'running') throw new NotRunningError(sandbox?.status ?? undefined);
  if (sandbox.worker_id !== ctx.runtime.engineId) throw new MovedAwayError();
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
