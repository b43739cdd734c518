import type { Context } from '../context.js';
import { announceChange } from '../db/changes.js';
import { inTransaction } from '../db/transaction.js';
import { assign, type Candidate } from './assign.js';
import type { Term } from './lease.js';
import { listWorkers, type WorkerRow } from './queries.js';
import { isAnyWaiting, lockQueue, markPlaced, markShort, serializePlacement } from './placement-queries.js';

/** Runs looked at in one transaction. Who is behind them comes after. */
const BATCH = 500;

/**
 * Gives those who wait a place on one of the live workers of this runtime, in the order in which they came. Any holder
 * of a lease does it for all workers; of several one at a time, so that no place is given twice.
 */
export async function placeWaiting(ctx: Context, term: Term): Promise<void> {
  const runtime = ctx.runtime.name;
  if (!(await isAnyWaiting(ctx.pool, runtime))) return;
  await inTransaction(ctx.pool, async (tx) => {
    await term.assertHeld(tx);
    await serializePlacement(tx, runtime);
    const queue = await lockQueue(tx, runtime, BATCH);
    const workers = await listWorkers(tx, runtime);
    const { placed, short } = assign(workers.filter(({ alive }) => alive).map(toCandidate), queue);
    const at = ctx.now();
    await markPlaced(tx, placed, at);
    await markShort(tx, [...short], at);
    for (const { runId, sandboxId } of queue) if (placed.has(runId)) await announceChange(tx, sandboxId);
  });
}

function toCandidate(row: WorkerRow): Candidate {
  return {
    id: row.id,
    capabilities: new Set(row.capabilities),
    capacity: { vcpus: row.vcpus, memoryMib: row.memory_mib, diskMib: row.disk_mib },
    free: {
      vcpus: row.vcpus - row.used_vcpus,
      memoryMib: row.memory_mib - row.used_memory_mib,
      diskMib: row.disk_mib === null ? null : row.disk_mib - row.used_disk_mib,
    },
  };
}
