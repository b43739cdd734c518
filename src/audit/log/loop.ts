import type { Logger } from 'pino';
import type { Changes } from '../../db/changes.js';
import { startLoop } from '../../lib/loop.js';
import type { SealContext } from './seal-context.js';
import { sealEvents } from './seal.js';

/** An event is in the log at the latest so long after its commit, in milliseconds, when nothing else tells of it. */
const SEAL_EVERY_MS = 1_000;
/** What comes within this time of a change is sealed together with it: many small batches cost more than one. */
const GATHER_MS = 50;

/** Seals events as they come. */
export function startSealing(
  ctx: SealContext & { changes: Changes; log: Logger },
  onError: (error: unknown) => void,
): { stop(): Promise<void> } {
  /** What was said already: it stays as it is until somebody looks at it. */
  let said = new Map<string, string>();
  const pass = async (signal: AbortSignal) => {
    const failed = await sealEvents(ctx, signal);
    for (const { orgId, error } of failed) {
      if (said.get(orgId) === String(error)) continue;
      ctx.log.error(
        { err: error, org_id: orgId },
        'the event log of an organization cannot be gone on with: see "sandkeep events verify"',
      );
    }
    said = new Map(failed.map(({ orgId, error }) => [orgId, String(error)]));
    // That the file cannot be written must not keep events out of the log.
    await ctx.eventHeads.write().catch(onError);
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
      await ctx.eventHeads.write({ now: true }).catch(onError);
    },
  };
}
