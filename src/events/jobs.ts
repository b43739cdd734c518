import type { Context } from '../context.js';
import { startLoop } from '../lib/loop.js';
import { sealEvents } from './seal.js';

/** An event is in the log at the latest so long after its commit, in milliseconds, when nothing else tells of it. */
const SEAL_EVERY_MS = 1_000;
/** What comes within this time of a change is sealed together with it: many small batches cost more than one. */
const GATHER_MS = 50;

/** Seals events as they come. */
export function startSealing(ctx: Context, onError: (error: unknown) => void): { stop(): Promise<void> } {
  const loop = startLoop((signal) => sealEvents(ctx, signal), { intervalMs: SEAL_EVERY_MS, onError });
  let soon: NodeJS.Timeout | undefined;
  const unsubscribe = ctx.changes.subscribe(undefined, () => {
    soon ??= setTimeout(() => {
      soon = undefined;
      loop.wake();
    }, GATHER_MS);
  });
  return {
    async stop() {
      unsubscribe();
      clearTimeout(soon);
      await loop.stop();
    },
  };
}
