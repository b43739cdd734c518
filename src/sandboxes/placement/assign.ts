/** The needs of a run, and the capacity of a worker. Disk null: the worker does not count it. */
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

export interface WaitingRun {
  runId: string;
  needs: Amounts;
  /** The sandbox needs a worker with all of these. */
  capabilities: readonly string[];
  /** The worker with the disk of the sandbox; null before the first placement. */
  pinnedTo: string | null;
}

/** `no_room`: no suitable worker has room now. `no_worker`: no live worker is suitable. */
export type PlacementResult = { workerId: string } | 'no_room' | 'no_worker';

/**
 * Assigns workers to runs, which arrive in the order of the queue. Pure.
 * A run without room reserves one worker that is large enough, always the same one: later runs cannot use it, so it
 * drains until the run fits. Large runs do not starve, and the other workers stay in use.
 * A run that fits no live worker, even an empty one, reserves nothing.
 */
export class Assignment {
  private readonly free: Map<string, Amounts>;
  private readonly reserved = new Set<string>();

  constructor(private readonly workers: readonly Candidate[]) {
    this.free = new Map(workers.map(({ id, free }) => [id, { ...free }]));
  }

  /** True when every worker is reserved: no later run gets a worker. */
  get exhausted(): boolean {
    return this.workers.length > 0 && this.reserved.size === this.workers.length;
  }

  assign({ needs, capabilities, pinnedTo }: WaitingRun): PlacementResult {
    const suitable = this.workers.filter(
      (worker) =>
        (pinnedTo === null || worker.id === pinnedTo) &&
        capabilities.every((capability) => worker.capabilities.has(capability)),
    );
    if (suitable.length === 0) return 'no_worker';
    const large = suitable.filter((worker) => fits(needs, worker.capacity));
    const open = large.filter(({ id }) => !this.reserved.has(id));
    const chosen = this.mostFreeMemory(open.filter(({ id }) => fits(needs, this.free.get(id)!)));
    if (chosen) {
      subtract(this.free.get(chosen.id)!, needs);
      return { workerId: chosen.id };
    }
    const [first] = open;
    if (first) this.reserved.add(first.id);
    return 'no_room';
  }

  /** By memory, because sandboxes share CPU time but not memory. */
  private mostFreeMemory(workers: readonly Candidate[]): Candidate | undefined {
    const memory = ({ id }: Candidate) => this.free.get(id)!.memoryMib;
    return workers.reduce<Candidate | undefined>(
      (best, worker) => (best && memory(best) >= memory(worker) ? best : worker),
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

function subtract(room: Amounts, needs: Amounts): void {
  room.vcpus -= needs.vcpus;
  room.memoryMib -= needs.memoryMib;
  if (room.diskMib !== null) room.diskMib -= needs.diskMib ?? 0;
}
