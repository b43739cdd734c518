import type { Context } from '../../context.js';
import { announceChanges } from '../../db/changes.js';
import type { Sql } from '../../db/pool.js';
import { inTransaction } from '../../db/transaction.js';
import type { Term } from '../../workers/lease.js';
import { listWorkers, type WorkerRow } from '../../workers/queries.js';
import { Assignment, type Candidate } from './assign.js';
import {
  isAnyWaiting,
  lockWaiting,
  markPlaced,
  markShort,
  readQueue,
  serializePlacement,
} from './queries.js';

/** Runs read at once. */
const BATCH = 500;

/**
 * Gives those who wait a place on one of the live workers of this runtime, in the order in which they came. Any holder
 * of a lease does it for all workers; of several one at a time, so that no place is given twice.
 */
export async function placeWaiting(ctx: Context, term: Term): Promise<void> {
  const runtime = ctx.runtime.name;
  if (!(await isAnyWaiting(ctx.pool, runtime))) return;
  await inTransaction(ctx.pool, async (tx) => {
    await serializePlacement(tx, runtime);
    const workers = (await listWorkers(tx, runtime)).filter(({ alive }) => alive);
    const { placed, short } = await walkQueue(tx, runtime, new Assignment(workers.map(toCandidate)));
    // Only now, as it holds up the renewal of the lease: a long queue takes its time.
    await term.assertHeld(tx);
    const at = ctx.now();
    // One that a caller is changing just now (stopping it, say) is passed over, and comes the next time.
    const locked = await lockWaiting(tx, runtime, [...placed.keys()]);
    await markPlaced(
      tx,
      locked.map(({ runId }) => ({ runId, workerId: placed.get(runId)! })),
      at,
    );
    await markShort(tx, runtime, short, at);
    await announceChanges(
      tx,
      locked.map(({ sandboxId }) => sandboxId),
    );
  });
}

interface Walk {
  /** Run to worker. */
  placed: Map<string, string>;
  /** The runs without room, and all that came after `behind`: there is nothing left to give them. */
  short: { runIds: string[]; behind: string | null };
}

/** Goes along the queue until its end, or until there is nothing more to give: who cannot be served holds up nobody. */
async function walkQueue(tx: Sql, runtime: string, assignment: Assignment): Promise<Walk> {
  const placed = new Map<string, string>();
  const runIds: string[] = [];
  let behind: string | null = null;
  for (;;) {
    const queue = await readQueue(tx, runtime, behind, BATCH);
    for (const waiting of queue) {
      const place = assignment.offer(waiting);
      if (place === 'short') runIds.push(waiting.runId);
      else if (place !== 'nobody') placed.set(waiting.runId, place.workerId);
      behind = waiting.runId;
      if (assignment.exhausted) return { placed, short: { runIds, behind } };
    }
    if (queue.length < BATCH) return { placed, short: { runIds, behind: null } };
  }
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
