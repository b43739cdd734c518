import { RECONCILER } from '../../audit/events/actor.js';
import { recordEvents, type NewEvent } from '../../audit/events/record.js';
import type { Context } from '../../context.js';
import { inTransaction } from '../../db/transaction.js';
import type { Instant } from '../../lib/instant.js';
import type { Run } from '../../engine/runtime.js';
import type { Term } from '../../workers/lease.js';
import { lockSandbox } from '../queries.js';

/** A check that finds no place is left out: the next start has another. */
const CHECKS_AT_ONCE = 16;

export interface MovedTo {
  digest: string;
  /** `kept`: the run has the image of its disk. `replaced`: the disk was made anew from the new image. */
  disk: 'kept' | 'replaced';
}

interface Subject {
  org_id: string;
  id: string;
  name: string;
  run_id: string | null;
  image_digest: string | null;
}

export function imageMoved(
  { org_id, id, name, run_id, image_digest }: Subject,
  { digest, disk }: MovedTo,
  at: Instant,
): NewEvent<'sandbox_image_moved'> {
  return {
    orgId: org_id,
    type: 'sandbox_image_moved',
    actor: RECONCILER,
    resourceId: id,
    at,
    payload: { sandbox_id: id, name, run_id, previous_digest: image_digest, digest, disk },
  };
}

/** Asks after a start whether the tag of its image leads elsewhere by now. No start waits for it. */
export class TagChecks {
  private readonly checks = new Set<Promise<void>>();
  private readonly closing = new AbortController();

  constructor(private readonly ctx: Context) {}

  begin(term: Term, run: Run): void {
    if (this.checks.size >= CHECKS_AT_ONCE || run.spec.pullPolicy === 'always') return;
    const check = this.check(term, run)
      .catch((error: unknown) => {
        this.ctx.log.debug({ err: error, sandboxId: run.sandboxId }, 'the tag of an image was not checked');
      })
      .finally(() => this.checks.delete(check));
    this.checks.add(check);
  }

  async close(): Promise<void> {
    this.closing.abort();
    await Promise.all(this.checks);
  }

  private async check(term: Term, run: Run): Promise<void> {
    const { ctx } = this;
    const digest = await ctx.runtime.latestDigest?.(run, this.closing.signal);
    if (digest === undefined) return;
    await inTransaction(ctx.pool, async (tx) => {
      await term.assertHeld(tx);
      const sandbox = await lockSandbox(tx, run.orgId, { id: run.sandboxId, orWarm: true });
      if (!sandbox?.image_digest || sandbox.run_id !== run.runId || sandbox.image_digest === digest) return;
      await recordEvents(tx, [imageMoved(sandbox, { digest, disk: 'kept' }, ctx.now())]);
    });
  }
}
