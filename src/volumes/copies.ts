import { RECONCILER } from '../audit/events/actor.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import type { EventSql } from '../db/transaction.js';
import { addMillis, type Instant } from '../lib/instant.js';
import { insertReading, setSampled } from './accrual-queries.js';
import { lockCopies, removeCopies, setCopied, type CopiedVolume } from './copy-queries.js';
import { VALID_INTERVALS } from './sample.js';

/** The sizes of filled volumes in KiB, by their ids. Undefined: the source never had data. */
export type CopiedSizes = ReadonlyMap<string, number | undefined>;

/**
 * The volumes of a fork are complete. Callers find them, and their usage begins. A volume whose sandbox was deleted
 * meanwhile goes, and so does one without a size: its sandbox was not there when the volumes were filled.
 */
export async function completeCopies(
  ctx: Context,
  tx: EventSql,
  { orgId, forkId }: { orgId: string; forkId: string },
  sizes: CopiedSizes,
  at: Instant,
): Promise<void> {
  const copies = await lockCopies(tx, orgId, forkId);
  const needed = copies.filter(({ id, is_mounted }) => is_mounted && sizes.has(id));
  for (const copy of needed) await complete(ctx, tx, orgId, copy, sizes.get(copy.id), at);
  if (needed.length < copies.length) await removeCopies(tx, orgId, forkId, at);
}

async function complete(
  ctx: Context,
  tx: EventSql,
  orgId: string,
  { id, name, capacity_gib, copied_from, fork_id }: CopiedVolume,
  kib: number | undefined,
  at: Instant,
): Promise<void> {
  await setCopied(tx, orgId, id, at);
  await setSampled(tx, orgId, id, at);
  if (kib !== undefined) {
    const until = addMillis(at, VALID_INTERVALS * ctx.settings.volumeSampleMs);
    await insertReading(tx, orgId, id, { at, until, kib });
  }
  await recordEvent(tx, {
    orgId,
    type: 'volume_created',
    actor: RECONCILER,
    resourceId: id,
    at,
    payload: { volume_id: id, kind: 'managed', name, capacity_gib, copied_from, fork_id },
  });
}
