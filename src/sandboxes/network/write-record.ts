import { recordEvents } from '../../audit/events/record.js';
import type { WorkerContext } from '../../context.js';
import { inTransaction } from '../../db/transaction.js';
import type { Due } from '../../engine/network-record/pending-record.js';
import type { Instant } from '../../lib/instant.js';
import { NetworkEventBytes } from './event-bytes.js';
import { eventOf, type NewNetworkEvent } from './events.js';
import { getObserved, type ObservedSandbox } from './queries.js';

/** A transaction has so many events. */
const BATCH = 500;
const MOST_ORGS = 20_000;

type Observed = ReadonlyMap<string, ObservedSandbox>;

/**
 * Writes the record of the network of sandboxes as audit events. The gateway names sandboxes only, so their
 * organizations come from the engine. A write that fails is repeated by the next pass.
 */
export class RecordWriter {
  /** By sandbox. */
  private readonly orgs = new Map<string, string>();
  private readonly bytes: NetworkEventBytes;

  constructor(bytes = new NetworkEventBytes()) {
    this.bytes = bytes;
  }

  async write(ctx: WorkerContext, at: Instant): Promise<void> {
    const { record } = ctx.network;
    const due = record.due();
    const observed = due.length === 0 ? undefined : await this.findAll(ctx, sandboxesOf(due));
    if (observed) await this.writeAll(ctx, due, observed, at);
    const leftOut = record.dueLeftOut();
    if (leftOut.length === 0) return;
    await this.writeAll(ctx, leftOut, await this.findAll(ctx, sandboxesOf(leftOut)), at);
  }

  /** Forgets the lists of refusals of sandboxes that are deleted. */
  async forgetRemoved(ctx: WorkerContext): Promise<void> {
    const { deniedLists } = ctx.network;
    const ids = deniedLists.sandboxIds();
    if (ids.length === 0) return;
    const observed = await this.findAll(ctx, new Set(ids));
    for (const id of ids) if (observed.get(id)?.is_removed !== false) deniedLists.forget(id);
  }

  /** Undefined: neither the engine nor this process knows the sandbox. */
  async orgOf(ctx: WorkerContext, sandboxId: string): Promise<string | undefined> {
    return (await this.orgsOf(ctx, new Set([sandboxId]))).get(sandboxId);
  }

  private async findAll(ctx: WorkerContext, ids: ReadonlySet<string>): Promise<Observed> {
    return getObserved(ctx.pool, await this.orgsOf(ctx, ids));
  }

  private async orgsOf(ctx: WorkerContext, ids: ReadonlySet<string>): Promise<Map<string, string>> {
    if ([...ids].some((id) => !this.orgs.has(id))) {
      if (this.orgs.size > MOST_ORGS) this.orgs.clear();
      for (const { sandboxId, orgId } of await ctx.runtime.list()) this.orgs.set(sandboxId, orgId);
    }
    const known = [...ids].flatMap((id) => {
      const orgId = this.orgs.get(id);
      return orgId === undefined ? [] : [[id, orgId] as const];
    });
    return new Map(known);
  }

  private async writeAll(
    { pool }: WorkerContext,
    due: readonly Due[],
    observed: Observed,
    at: Instant,
  ): Promise<void> {
    let batch: { events: NewNetworkEvent[]; entries: Due[] } = { events: [], entries: [] };
    const send = async () => {
      const { events, entries } = batch;
      batch = { events: [], entries: [] };
      await inTransaction(pool, async (tx) => recordEvents(tx, events));
      for (const entry of entries) entry.written();
    };
    for (const entry of due) {
      const sandbox = observed.get(entry.sandboxId);
      if (!sandbox || !isRecorded(sandbox, entry)) {
        entry.written();
        continue;
      }
      const event = eventOf(sandbox, entry.content, at);
      // At most one a minute and sandbox says how much is left out.
      if (event.type !== 'network_record_cut' && !this.bytes.admit(event)) {
        entry.leaveOut();
        continue;
      }
      batch.events.push(event);
      batch.entries.push(entry);
      if (batch.events.length >= BATCH) await send();
    }
    if (batch.events.length > 0) await send();
  }
}

function sandboxesOf(due: readonly Due[]): Set<string> {
  return new Set(due.map(({ sandboxId }) => sandboxId));
}

/** A violation of a secret is always recorded. */
function isRecorded({ is_recorded }: ObservedSandbox, { content }: Due): boolean {
  return is_recorded || ('refusal' in content && content.refusal.kind === 'secret');
}
