import type { Logger } from 'pino';
import type { Changes } from '../../db/changes.js';
import { startLoop } from '../../lib/loop.js';
import { sealEvents } from './seal.js';
import type { SealContext } from './seal-context.js';

/** The sealer polls at this interval when a notification is lost. In milliseconds. */
const SEAL_EVERY_MS = 1_000;
/** One batch for the changes within this time: many small batches cost more. */
const GATHER_MS = 50;

export function startSealing(
  ctx: SealContext & { changes: Changes; log: Logger },
  onError: (error: unknown) => void,
): { stop(): Promise<void> } {
  let logged = new Map<string, string>();
  const pass = async (signal: AbortSignal) => {
    const failures = await sealEvents(ctx, signal);
    for (const { orgId, error } of failures) {
      if (logged.get(orgId) === String(error)) continue;
      ctx.log.error(
        { err: error, org_id: orgId },
        'cannot append to the event log of an organization; run "sandkeep events verify"',
      );
    }
    logged = new Map(failures.map(({ orgId, error }) => [orgId, String(error)]));
    // Sealing continues when the file cannot be written.
    await ctx.seenHeads.write().catch(onError);
  };
  const loop = startLoop(pass, { intervalMs: SEAL_EVERY_MS, onError });
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
      await ctx.seenHeads.write({ now: true }).catch(onError);
    },
  };
}
