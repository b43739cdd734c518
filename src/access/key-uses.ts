import { KEYS } from '../audit/events/actor.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import type { Instant } from '../lib/instant.js';
import { startLoop, type Loop } from '../lib/loop.js';
import { setRefusalsRecorded, setUsed, type KeyUse } from './key-queries.js';

type KeyId = Pick<KeyUse, 'org_id' | 'id'>;
export type RefusalReason = 'revoked' | 'expired' | 'address' | 'scope';

/** The interval between two writes for one key, and the window in which refusals are counted, in milliseconds. */
const MINUTE_MS = 60_000;
/** So many refusals of a key in a minute are recorded as an event. */
const FREQUENT_REFUSALS = 20;

interface Refusals extends KeyId {
  since: number;
  count: number;
  reasons: Set<RefusalReason>;
}

/**
 * Records uses and refusals of keys in the background. A process that is killed loses at most a minute of
 * `last_used_at`.
 */
export class KeyUses {
  private readonly pending = new Map<string, KeyUse>();
  private readonly written = new Map<string, number>();
  private readonly refusals = new Map<string, Refusals>();
  private readonly loop: Loop;

  constructor(private readonly ctx: Context) {
    this.loop = startLoop(() => this.write({ all: false }), {
      intervalMs: ctx.settings.keyUseWriteMs,
      onError: (error) => ctx.log.warn({ err: error }, 'writing the use of keys failed'),
    });
  }

  recordUse({ org_id, id }: KeyId, at: Instant): void {
    this.pending.set(id, { org_id, id, at });
  }

  recordRefusal({ org_id, id }: KeyId, reason: RefusalReason): void {
    const now = performance.now();
    const known = this.refusals.get(id);
    const refusals =
      known && now - known.since < MINUTE_MS
        ? known
        : { org_id, id, since: now, count: 0, reasons: new Set<RefusalReason>() };
    refusals.count += 1;
    refusals.reasons.add(reason);
    this.refusals.set(id, refusals);
  }

  async close(): Promise<void> {
    await this.loop.stop();
    await this.write({ all: true });
  }

  private async write({ all }: { all: boolean }): Promise<void> {
    const now = performance.now();
    for (const [id, at] of this.written) if (now - at >= MINUTE_MS) this.written.delete(id);
    const due = [...this.pending.values()].filter(({ id }) => all || !this.written.has(id));
    if (due.length > 0) {
      for (const { id } of due) {
        this.pending.delete(id);
        this.written.set(id, now);
      }
      await this.writeUses(due).catch((error: unknown) => {
        // Retry with the next write. A use that was added meanwhile is newer.
        for (const use of due) {
          this.written.delete(use.id);
          if (!this.pending.has(use.id)) this.pending.set(use.id, use);
        }
        throw error;
      });
    }
    for (const [id, refusals] of this.refusals) {
      const over = all || now - refusals.since >= MINUTE_MS;
      if (refusals.count < FREQUENT_REFUSALS && !over) continue;
      if (refusals.count >= FREQUENT_REFUSALS) await this.writeRefusals(refusals);
      this.refusals.delete(id);
    }
  }

  private async writeUses(uses: readonly KeyUse[]): Promise<void> {
    await inTransaction(this.ctx.pool, async (tx) => {
      for (const { org_id: orgId, id, name, prefix, at } of await setUsed(tx, uses)) {
        await recordEvent(tx, {
          orgId,
          type: 'api_key_first_used',
          actor: { kind: 'api_key', api_key_id: id, name },
          resourceId: id,
          at,
          payload: { api_key_id: id, name, prefix },
        });
      }
    });
  }

  private async writeRefusals({ org_id: orgId, id, count, reasons }: Refusals): Promise<void> {
    await inTransaction(this.ctx.pool, async (tx) => {
      const at = this.ctx.now();
      const key = await setRefusalsRecorded(tx, orgId, id, at);
      if (!key) return;
      await recordEvent(tx, {
        orgId,
        type: 'api_key_refused_often',
        actor: KEYS,
        resourceId: id,
        at,
        payload: {
          api_key_id: id,
          name: key.name,
          prefix: key.prefix,
          refusals: count,
          reasons: [...reasons].toSorted(),
        },
      });
    });
  }
}
