import type { Context } from '../../context.js';
import { announceChanges } from '../../db/changes.js';
import type { Sql } from '../../db/pool.js';
import { inTransaction } from '../../db/transaction.js';
import { microsOf, type Instant } from '../../lib/instant.js';
import { admittedMillis } from '../../runs/run-id.js';
import { placeRuns } from '../../runs/queries.js';
import type { Term } from '../../workers/lease.js';
import { listWorkers, type WorkerRow } from '../../workers/queries.js';
import { assignRuns, type Candidate, type OrgQueue, type WaitingRun } from './assign.js';
import { explainNoRoom } from './explain-no-room.js';
import {
  HEAD_RUNS,
  isAnyWaiting,
  lockWaiting,
  markInsufficientCapacity,
  PASS_RUNS,
  placeSandboxes,
  readQueues,
  readUse,
  serializePlacement,
  type QueuedRun,
} from './queries.js';

/** Every organization has the same. */
const WEIGHT = 1;

/** `PASS_RUNS` are read at most once in this time, because most runs of a long queue find no room again. */
export const READ_MANY_EVERY_MS = 1_000;

/** The figures of a run that is already told to wait are renewed at most once in this time, for so many runs. */
const RENEW_WORDS_EVERY_MS = 5_000;
const MOST_RENEWED = 200;

/** Makes the job that places waiting runs. The announcement of placed runs starts the next pass, which places more. */
export function makePlacement(ctx: Context): (term: Term, now?: number) => Promise<void> {
  let readMany = -Infinity;
  let renewed = -Infinity;
  return async function placeWaiting(term, now = performance.now()) {
    if (!(await isAnyWaiting(ctx.pool, ctx.runtime.name))) return;
    const isMany = now - readMany >= READ_MANY_EVERY_MS;
    if (isMany) readMany = now;
    const renews = isMany && now - renewed >= RENEW_WORDS_EVERY_MS;
    if (renews) renewed = now;
    await place(ctx, term, isMany ? PASS_RUNS : HEAD_RUNS, renews ? MOST_RENEWED : 0);
  };
}

/**
 * Places waiting runs on the live workers, in turns of the organizations. Each holder of a lease places runs for all
 * workers of the runtime. The lock lets one of them at a time, so that no room is given twice.
 */
async function place(ctx: Context, term: Term, count: number, mostRenewed: number): Promise<void> {
  const runtime = ctx.runtime.name;
  const began = performance.now();
  const counts = await inTransaction(ctx.pool, async (tx) => {
    await serializePlacement(tx, runtime);
    const workers = (await listWorkers(tx, runtime)).filter(({ alive }) => alive);
    const workerIds = workers.map(({ id }) => id);
    const queued = await readQueues(tx, runtime, workerIds, count);
    const at = ctx.now();
    const queues = await readOrgQueues(tx, queued, workerIds, at);
    const candidates = workers.map(toCandidate);
    const workersForRuns = ctx.runtime.placesRuns ? candidates.map(withoutLimits) : candidates;
    const { placed, noRoom, free } = assignRuns(workersForRuns, queues);
    // After the queue, because the lock on the lease blocks its renewal.
    await term.assertHeld(tx);
    const locked = await lockWaiting(
      tx,
      runtime,
      queued.filter(({ runId }) => placed.has(runId)),
    );
    const runs = locked.map((run) => ({ ...run, workerId: placed.get(run.runId)! }));
    await placeSandboxes(tx, await placeRuns(tx, runs), at);
    const short = new Set(noRoom);
    let left = mostRenewed;
    const untold = queued.flatMap((run) => {
      if (!short.has(run.runId) || (run.isMarked && left <= 0)) return [];
      const words = explainNoRoom(run, workersForRuns, free);
      if (run.isMarked && run.words === words) return [];
      if (run.isMarked) left -= 1;
      return [{ ...run, words }];
    });
    await markInsufficientCapacity(tx, runtime, untold, at);
    await announceChanges(
      tx,
      locked.map(({ sandboxId }) => sandboxId),
    );
    return { 'sandkeep.waiting': queued.length, 'sandkeep.placed': runs.length };
  });
  if (counts['sandkeep.placed'] > 0) {
    const times = { began, ended: performance.now() };
    ctx.tracing?.record({ name: 'placement', kind: 'internal', ...times, attributes: counts });
  }
}

async function readOrgQueues(
  tx: Sql,
  queued: readonly QueuedRun[],
  workerIds: readonly string[],
  at: Instant,
): Promise<OrgQueue[]> {
  const runs = new Map<string, WaitingRun[]>();
  const now = Number(microsOf(at) / 1_000n);
  for (const { orgId, ...run } of queued) {
    const waiting = { ...run, waitedMs: Math.max(now - admittedMillis(run.runId), 0) };
    const before = runs.get(orgId);
    if (before) before.push(waiting);
    else runs.set(orgId, [waiting]);
  }
  const use = await readUse(tx, [...runs.keys()], workerIds);
  return [...runs].map(([orgId, own]) => ({ orgId, weight: WEIGHT, ...use.get(orgId)!, runs: own }));
}

/** The engine places the runs, and makes room for those that wait. */
function withoutLimits(candidate: Candidate): Candidate {
  const endless = { vcpus: Infinity, memoryMib: Infinity, diskMib: null };
  return { ...candidate, capacity: endless, free: endless };
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
