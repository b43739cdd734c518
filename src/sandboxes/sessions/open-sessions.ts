import { setImmediate as nextIteration } from 'node:timers/promises';
import type { Context } from '../../context.js';
import type { Sql } from '../../db/pool.js';
import { startLoop, type Loop } from '../../lib/loop.js';
import { renewSessions } from './queries.js';

const RENEWALS = 4;

interface OpenSession {
  orgId: string;
  /** Called when another process has ended the session in the audit trail. */
  onLost: () => void;
  /** Called when a caller has asked for the end of the session. */
  onEndRequest: () => void;
}

/** The sessions that this process serves. It renews their rows, so that no process takes them for lost. */
export class OpenSessions {
  private readonly open = new Map<string, OpenSession>();
  /** The ends that are not in the audit trail yet. Each is retried until it is. */
  private readonly ends = new Map<string, () => Promise<void>>();
  private readonly writes = new Set<Promise<unknown>>();
  private readonly loop: Loop;
  private readonly unsubscribe: () => void;

  constructor(private readonly ctx: { pool: Sql } & Pick<Context, 'log' | 'settings' | 'changes'>) {
    const everyMs = ctx.settings.sessionLostMs / RENEWALS;
    this.loop = startLoop(() => this.renew(), {
      intervalMs: everyMs,
      maxBackoffMs: everyMs,
      onError: (error) => ctx.log.warn({ err: error }, 'open sessions could not be renewed'),
    });
    // A notification that is lost while the connection is down is found by the next renewal.
    this.unsubscribe = ctx.changes.subscribe(
      undefined,
      (id) => id !== undefined && this.open.get(id)?.onEndRequest(),
      'visit',
    );
  }

  /** `recorded`: settles when the beginning is in the audit trail, or is not. */
  async begin<T>(id: string, session: OpenSession, recorded: Promise<T>): Promise<T> {
    const begun = await this.waitFor(recorded);
    this.open.set(id, session);
    return begun;
  }

  /** `record`: writes the end. It may be called again. */
  end(id: string, record: () => Promise<void>): void {
    this.ends.set(id, record);
    void this.waitFor(this.tryEnd(id, record));
  }

  /** Resolves when every end is in the audit trail, as far as the database answers. */
  async close(): Promise<void> {
    this.unsubscribe();
    await this.loop.stop();
    do {
      await Promise.allSettled(this.writes);
      // A session that has just begun ends in this iteration of the event loop.
      await nextIteration();
    } while (this.writes.size > 0);
  }

  private async renew(): Promise<void> {
    const before = [...this.open];
    if (before.length === 0) return;
    const kept = await renewSessions(
      this.ctx.pool,
      before.map(([id, { orgId }]) => ({ id, orgId })),
    );
    for (const [id, { onLost, onEndRequest }] of before) {
      if (this.ends.has(id)) continue;
      const row = kept.get(id);
      if (row?.isToEnd) onEndRequest();
      else if (!row && this.open.delete(id)) onLost();
    }
    for (const [id, record] of this.ends) await this.tryEnd(id, record);
  }

  private async tryEnd(id: string, record: () => Promise<void>): Promise<void> {
    try {
      await record();
      this.ends.delete(id);
      this.open.delete(id);
    } catch (error) {
      this.ctx.log.error({ err: error, sessionId: id }, 'the end of a session is not recorded yet');
    }
  }

  private async waitFor<T>(write: Promise<T>): Promise<T> {
    this.writes.add(write);
    return write.finally(() => this.writes.delete(write));
  }
}
