import { KEYS } from '../audit/events/actor.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import type { Instant } from '../lib/instant.js';
import { startLoop, type Loop } from '../lib/loop.js';
import { setRefusalsRecorded, setUsed, type KeyUse } from './key-queries.js';

/** What is known of a key when it is used or refused. */
type Known = Pick<KeyUse, 'org_id' | 'id'>;
export type RefusalReason = 'revoked' | 'expired' | 'address' | 'scope';

/** Between two notes of the use of a key, and the time in which refusals are counted, in milliseconds. */
const MINUTE_MS = 60_000;
/** So many refusals in a minute are often. */
const OFTEN = 20;

interface Refusals extends Known {
  since: number;
  count: number;
  reasons: Set<RefusalReason>;
}

/**
 * Which keys are used and refused, written down off the path of requests. What a killed process had not written yet is lost:
 * it is at most a minute of `last_used_at`.
 */
export class KeyUses {
  private readonly pending = new Map<string, KeyUse>();
  /** When this process last wrote the use of a key. */
  private readonly written = new Map<string, number>();
  private readonly refusals = new Map<string, Refusals>();
  private readonly loop: Loop;

  constructor(private readonly ctx: Context) {
    this.loop = startLoop(() => this.write({ all: false }), {
      intervalMs: ctx.settings.keyUseWriteMs,
      onError: (error) => ctx.log.warn({ err: error }, 'the use of keys could not be written'),
    });
  }

  used({ org_id, id }: Known, at: Instant): void {
    this.pending.set(id, { org_id, id, at });
  }

  refused({ org_id, id }: Known, reason: RefusalReason): void {
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

  /** Writes what there is, and ends. */
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
        // It is tried again; what came meanwhile is newer.
        for (const use of due) {
          this.written.delete(use.id);
          if (!this.pending.has(use.id)) this.pending.set(use.id, use);
        }
        throw error;
      });
    }
    for (const [id, refusals] of this.refusals) {
      const over = all || now - refusals.since >= MINUTE_MS;
      if (refusals.count < OFTEN && !over) continue;
      if (refusals.count >= OFTEN) await this.writeRefusals(refusals);
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
          ...{ api_key_id: id, name: key.name, prefix: key.prefix },
          ...{ refusals: count, reasons: [...reasons].toSorted() },
        },
      });
    });
  }
}
