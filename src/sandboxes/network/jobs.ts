import type { WorkerContext } from '../../context.js';
import { microsOf } from '../../lib/instant.js';
import { endViolators } from './end-violators.js';
import { RecordWriter } from './write-record.js';

const FORGET_EVERY_MS = 60_000;

export interface NetworkRecordJob {
  pass(ctx: WorkerContext): Promise<void>;
  /** Writes everything so far, before the process stops. */
  finish(ctx: WorkerContext): Promise<void>;
}

/** Makes the pass that ends violators, and writes the due part of the record of the network. */
export function makeNetworkRecordJob(writer = new RecordWriter()): NetworkRecordJob {
  let forgetAt = performance.now() + FORGET_EVERY_MS;
  return {
    async pass(ctx) {
      await endViolators(ctx, writer);
      const at = ctx.now();
      ctx.network.record.turn(Number(microsOf(at) / 1_000n));
      await writer.write(ctx, at);
      if (performance.now() < forgetAt) return;
      forgetAt = performance.now() + FORGET_EVERY_MS;
      await writer.forgetRemoved(ctx);
    },
    async finish(ctx) {
      ctx.network.record.endMinute();
      await writer.write(ctx, ctx.now());
    },
  };
}
