import type { Context } from '../../context.js';
import type { Instant } from '../../lib/instant.js';
import { startLoop, type Loop } from '../../lib/loop.js';
import { setUsed } from './queries.js';

const MINUTE_SECS = 60;
const WRITE_EVERY_MS = 10_000;
/** One statement writes so many at most. */
const BATCH = 1_000;

/** Writes the last use of previews, each at most once a minute in all processes. A lost write costs nothing else. */
export class PreviewUses {
  private readonly pending = new Map<string, { orgId: string; id: string; at: Instant }>();
  private readonly loop: Loop;

  constructor(private readonly ctx: Pick<Context, 'pool' | 'log'>) {
    this.loop = startLoop(() => this.write(), {
      intervalMs: WRITE_EVERY_MS,
      onError: (error) => ctx.log.warn({ err: error }, 'writing the use of previews failed'),
    });
  }

  note(orgId: string, id: string, at: Instant): void {
    this.pending.set(id, { orgId, id, at });
  }

  async close(): Promise<void> {
    await this.loop.stop();
    await this.write();
  }

  private async write(): Promise<void> {
    const uses = [...this.pending.values()].toSorted((a, b) => (a.id < b.id ? -1 : 1));
    this.pending.clear();
    for (let at = 0; at < uses.length; at += BATCH) {
      await setUsed(this.ctx.pool, uses.slice(at, at + BATCH), MINUTE_SECS);
    }
  }
}
