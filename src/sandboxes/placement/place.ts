import type { Context } from '../../context.js';
import { announceChanges } from '../../db/changes.js';
import type { Sql } from '../../db/pool.js';
import { inTransaction } from '../../db/transaction.js';
import { placeRuns } from '../../runs/queries.js';
import type { Term } from '../../workers/lease.js';
import { listWorkers, type WorkerRow } from '../../workers/queries.js';
import { Assignment, type Candidate } from './assign.js';
import {
  isAnyWaiting,
  lockWaiting,
  markInsufficientCapacity,
  placeSandboxes,
  readQueue,
  serializePlacement,
} from './queries.js';

const BATCH = 500;

/**
 * Places waiting runs on the live workers of this runtime, in the order of their arrival. Each holder of a lease places runs
 * for all workers; a lock keeps it to one at a time, so that no room is given twice.
 */
export async function placeWaiting(ctx: Context, term: Term): Promise<void> {
  const runtime = ctx.runtime.name;
  if (!(await isAnyWaiting(ctx.pool, runtime))) return;
  await inTransaction(ctx.pool, async (tx) => {
    await serializePlacement(tx, runtime);
    const workers = (await listWorkers(tx, runtime)).filter(({ alive }) => alive);
    const { placed, noRoom } = await assignQueue(tx, runtime, new Assignment(workers.map(toCandidate)));
    // After the queue, because the lock on the lease blocks its renewal.
    await term.assertHeld(tx);
    const at = ctx.now();
    const locked = await lockWaiting(tx, runtime, [...placed.keys()]);
    const runs = locked.map(({ runId }) => ({ runId, workerId: placed.get(runId)! }));
    await placeSandboxes(tx, await placeRuns(tx, runs), at);
    await markInsufficientCapacity(tx, runtime, noRoom, at);
    await announceChanges(
      tx,
      locked.map(({ sandboxId }) => sandboxId),
    );
  });
}

interface Assigned {
  placed: Map<string, string>;
  /** The runs without room: these, and every run after `after`. */
  noRoom: { runIds: string[]; after: string | null };
}

/** Assigns the queue until its end, or until every worker is reserved. */
async function assignQueue(tx: Sql, runtime: string, assignment: Assignment): Promise<Assigned> {
  const placed = new Map<string, string>();
  const runIds: string[] = [];
  let after: string | null = null;
  for (;;) {
    const queue = await readQueue(tx, runtime, after, BATCH);
    for (const run of queue) {
      const result = assignment.assign(run);
      if (result === 'no_room') runIds.push(run.runId);
      else if (result !== 'no_worker') placed.set(run.runId, result.workerId);
      after = run.runId;
      if (assignment.exhausted) return { placed, noRoom: { runIds, after } };
    }
    if (queue.length < BATCH) return { placed, noRoom: { runIds, after: null } };
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
