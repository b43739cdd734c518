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

/** A place, `short` when there is no room now, or `nobody` when no worker that is there can serve it at all. */
export type Place = { workerId: string } | 'short' | 'nobody';

/**
 * Gives places to those who wait, who have to be offered in the order in which they came. Pure.
 *
 * Who finds no room keeps one worker that could hold it closed to all behind, always the same one. So that worker
 * empties until it fits: the large do not starve, while the others go on being used. With a single worker nobody passes
 * anybody.
 *
 * A run that no worker can serve, or that is larger than each of them, waits without closing anything.
 */
export class Assignment {
  private readonly free: Map<string, Amounts>;
  private readonly closed = new Set<string>();

  constructor(private readonly workers: readonly Candidate[]) {
    this.free = new Map(workers.map(({ id, free }) => [id, { ...free }]));
  }

  /** Is nothing left to give? Whoever is offered now is short. */
  get exhausted(): boolean {
    return this.workers.length > 0 && this.closed.size === this.workers.length;
  }

  offer({ needs, demands, pinnedTo }: Waiting): Place {
    const able = this.workers.filter(
      (worker) =>
        (pinnedTo === null || worker.id === pinnedTo) &&
        demands.every((demand) => worker.capabilities.has(demand)),
    );
    if (able.length === 0) return 'nobody';
    const large = able.filter((worker) => fits(needs, worker.capacity));
    const open = large.filter(({ id }) => !this.closed.has(id));
    const chosen = this.emptiest(open.filter(({ id }) => fits(needs, this.free.get(id)!)));
    if (chosen) {
      take(this.free.get(chosen.id)!, needs);
      return { workerId: chosen.id };
    }
    const [kept] = open;
    if (kept) this.closed.add(kept.id);
    return 'short';
  }

  /** The worker with the most memory to spare: memory is what cannot be shared in time. */
  private emptiest(workers: readonly Candidate[]): Candidate | undefined {
    const spare = ({ id }: Candidate) => this.free.get(id)!.memoryMib;
    return workers.reduce<Candidate | undefined>(
      (best, worker) => (best && spare(best) >= spare(worker) ? best : worker),
      undefined,
    );
  }
}

function fits(needs: Amounts, room: Amounts): boolean {
  return (
    needs.vcpus <= room.vcpus &&
    needs.memoryMib <= room.memoryMib &&
    (room.diskMib === null || (needs.diskMib ?? 0) <= room.diskMib)
  );
}

function take(room: Amounts, needs: Amounts): void {
  room.vcpus -= needs.vcpus;
  room.memoryMib -= needs.memoryMib;
  if (room.diskMib !== null) room.diskMib -= needs.diskMib ?? 0;
}
