/** What a run needs of a worker, and what a worker has. Disk null: the worker does not count it. */
export interface Amounts {
  vcpus: number;
  memoryMib: number;
  diskMib: number | null;
}

export interface Candidate {
  id: string;
  capabilities: ReadonlySet<string>;
  capacity: Amounts;
  free: Amounts;
}

/** A run that waits for a place. */
export interface Waiting {
  runId: string;
  needs: Amounts;
  /** What only some workers can enforce and this sandbox asks for. */
  demands: readonly string[];
  /** Where its disk is; null before it was placed for the first time. */
  pinnedTo: string | null;
}

export interface Assignment {
  /** Run to worker. */
  placed: Map<string, string>;
  /** The runs for which there is no room now. */
  short: Set<string>;
}

/**
 * Gives places to those who wait, first come first served. Pure.
 *
 * Who finds no room keeps one worker that could hold it closed to all behind, always the same one. So that worker
 * empties until it fits: the large do not starve, while the others go on being used. With a single worker nobody passes
 * anybody.
 *
 * A run whose worker is away, or that no worker can serve, waits without closing anything.
 */
export function assign(workers: readonly Candidate[], queue: readonly Waiting[]): Assignment {
  const free = new Map(workers.map((worker) => [worker.id, { ...worker.free }]));
  const closed = new Set<string>();
  const placed = new Map<string, string>();
  const short = new Set<string>();
  for (const { runId, needs, demands, pinnedTo } of queue) {
    const able = workers.filter(
      (worker) =>
        (pinnedTo === null || worker.id === pinnedTo) &&
        demands.every((demand) => worker.capabilities.has(demand)),
    );
    const large = able.filter((worker) => fits(needs, worker.capacity));
    const open = large.filter(({ id }) => !closed.has(id) && fits(needs, free.get(id)!));
    const chosen = emptiest(open, free);
    if (chosen) {
      take(free.get(chosen.id)!, needs);
      placed.set(runId, chosen.id);
      continue;
    }
    if (able.length === 0) continue;
    short.add(runId);
    const kept = large.find(({ id }) => !closed.has(id));
    if (kept) closed.add(kept.id);
  }
  return { placed, short };
}

function fits(needs: Amounts, room: Amounts): boolean {
  return (
    needs.vcpus <= room.vcpus &&
    needs.memoryMib <= room.memoryMib &&
    (room.diskMib === null || (needs.diskMib ?? 0) <= room.diskMib)
  );
}

/** The worker with the most memory to spare: memory is what cannot be shared in time. */
function emptiest(workers: readonly Candidate[], free: ReadonlyMap<string, Amounts>): Candidate | undefined {
  let best: Candidate | undefined;
  for (const worker of workers) {
    if (!best || free.get(worker.id)!.memoryMib > free.get(best.id)!.memoryMib) best = worker;
  }
  return best;
}

function take(room: Amounts, needs: Amounts): void {
  room.vcpus -= needs.vcpus;
  room.memoryMib -= needs.memoryMib;
  if (room.diskMib !== null) room.diskMib -= needs.diskMib ?? 0;
}
